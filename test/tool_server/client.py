"""Stands for a command that server.py runs: `client.py SOCKET COMMAND ARGUMENTS`. Imports next to nothing, for lit
starts hundreds."""

import _socket
import array
import marshal
import os
import sys

connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
connection.connect("\0" + sys.argv[1])
request = marshal.dumps((os.getcwd(), dict(os.environ), sys.argv[2:]))
connection.send(len(request).to_bytes(4, "big"))
streams = array.array("i", [0, 1, 2])
sent = connection.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
connection.sendall(request[sent:])
os.close(0)
os.close(1)
if code := connection.recv(1):
    sys.exit(code[0])
os.abort()  # as the command did
