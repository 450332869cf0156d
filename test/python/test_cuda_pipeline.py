"""What a pipeline's launcher asks of the driver: tensor maps, parameters, clusters."""

import threading

import pytest
from fake_driver import FakeDriver, FakeGpu, Result, install

from kitsune_mlir.errors import InternalError, UnsupportedError, UserError
from kitsune_mlir.runtime.cuda_pipeline import PipelineLauncher

X, W, Y = 0x10000, 0x20000, 0x30000
WEIGHTS = {"tensor": 1, "element": "bf16", "dims": [256, 512], "strides": [512], "box": [64, 128], "swizzle": 128}
RESULT = {"tensor": 2, "element": "f32", "dims": [8, 4, None], "strides": [32, 128], "box": [8, 4, 2], "swizzle": 32}


def launcher(monkeypatch, gpu=None, driver=None, overlapped=False, **keys):
    """A launcher of a kernel of two inputs and a result, and the driver."""
    driver = driver or FakeDriver()
    install(monkeypatch, driver)
    launch = {
        "kernel": "p",
        "ctas": 132,
        "threads": 384,
        "shared_bytes": 1000,
        "workspace_bytes": 0,
        "cooperative": False,
        "watched": [],
        "streams": [0],
        "tile_rows": 128,
    } | keys
    gpu = gpu or FakeGpu()
    driver.parameters = len(launch.get("maps", [])), 5  # three tensors, workspace, rows
    return PipelineLauncher(gpu, launch, gpu, overlapped), driver


def bind(made, rows=100):
    return made.bind([((rows, 256), "bf16"), ((512, 256), "bf16")], [((rows, 4, 8), "f32")])


def run(made, rows=100, x=X, w=W, y=Y, stream=0, alone=True):
    bind(made, rows).launch(stream, [x, w, y], alone=alone)


def test_a_plain_kernel(monkeypatch):
    made, driver = launcher(monkeypatch)
    run(made, stream=9)
    (launch,) = driver.launches
    assert (launch.values, launch.rows, launch.maps, launch.function) == ([X, W, Y, 0], 100, b"", 7)
    config = launch.config
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (132, 1, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (384, 1, 1)
    assert (config.sharedMemBytes, config.hStream, config.numAttrs) == (1000, 9, 0)


@pytest.mark.parametrize(
    "cooperative, alone, attributes",
    [(False, False, [6]), (True, False, [2]), (False, True, [])],
    ids=["overlapped", "cooperative", "alone"],
)
def test_a_kernel_that_waits_for_the_one_before_it(monkeypatch, cooperative, alone, attributes):
    """CTAs that wait for one another need all places at once: their kernel does not begin before the other ends. Nor
    does the first of a run, before which others may have written what later ones read early."""
    made, driver = launcher(monkeypatch, overlapped=True, cooperative=cooperative)
    run(made, alone=alone)
    (launch,) = driver.launches
    assert [attribute.id for attribute in launch.config.attrs] == attributes
    if attributes == [6]:
        assert launch.config.attrs[0].value.programmaticStreamSerializationAllowed == 1


def test_maps_go_first_and_by_value(monkeypatch):
    made, driver = launcher(monkeypatch, maps=[WEIGHTS, RESULT])
    run(made)
    weights, result = driver.encoded
    assert (weights.element, weights.base, weights.dims, weights.strides) == (9, W, [256, 512], [512])
    assert (weights.box, weights.steps, weights.modes) == ([64, 128], [1, 1], (0, 3, 3, 0))
    assert (result.element, result.base, result.dims, result.strides) == (7, Y, [8, 4, 100], [32, 128])
    assert (result.box, result.steps, result.modes) == ([8, 4, 2], [1, 1, 1], (0, 1, 3, 0))
    (launch,) = driver.launches
    assert launch.maps == bytes([1] * 128 + [2] * 128)
    assert (launch.values, launch.rows) == ([X, W, Y, 0], 100)


ELEMENTS = [("f16", 0, (6, 0)), ("f32", 64, (7, 2)), ("tf32", 64, (11, 2))]


@pytest.mark.parametrize(("element", "swizzle", "numbers"), ELEMENTS)
def test_elements_and_swizzles(monkeypatch, element, swizzle, numbers):
    entry = WEIGHTS | {"element": element, "swizzle": swizzle, "box": [16, 8]}
    made, driver = launcher(monkeypatch, maps=[entry])
    run(made)
    assert (driver.encoded[0].element, driver.encoded[0].modes[1]) == numbers


def test_a_map_of_one_dimension(monkeypatch):
    made, driver = launcher(monkeypatch, maps=[WEIGHTS | {"dims": [512], "strides": [], "box": [64]}])
    run(made)
    assert (driver.encoded[0].dims, driver.encoded[0].strides) == ([512], [])


WINDOWS = WEIGHTS | {
    "dims": [64, 9, 7, None],
    "strides": [128, 1152, 8064],
    "box": [64, 128],
    "lower": [-1, -2],
    "upper": [-1, 0],
    "steps": [2, 1],
}


def test_maps_of_windows(monkeypatch):
    """Corners are those of the space alone; elements of a channel and images are never skipped."""
    made, driver = launcher(monkeypatch, maps=[WINDOWS])
    run(made)
    (found,) = driver.encoded
    assert (found.element, found.base, found.dims) == (9, W, [64, 9, 7, 100])
    assert (found.strides, found.box, found.modes) == ([128, 1152, 8064], [64, 128], (0, 3, 3, 0))
    assert (found.corners, found.steps) == (([-1, -2], [-1, 0]), [1, 2, 1, 1])


@pytest.mark.parametrize(("change", "sentence"), [
    ({"lower": [-1]}, "corners and steps of 2 less"),
    ({"dims": [64, 9], "strides": [128], "lower": [], "upper": [], "steps": []}, "3 to 5 dims"),
    ({"lower": [-129, 0]}, "within 128 elements"),
    ({"upper": [0, 128]}, "within 128 elements"),
    ({"steps": [9, 1]}, "steps from 1 to 8"),
    ({"box": [64, 1025]}, "found \\[64, 1025\\]"),
    ({"box": [64, 2, 3, 1]}, "a box of as many"),
])  # fmt: skip
def test_maps_of_windows_that_no_gpu_can_use(monkeypatch, change, sentence):
    with pytest.raises(InternalError, match=sentence):
        launcher(monkeypatch, maps=[WINDOWS | change])


def test_only_maps_of_tensors_that_moved_are_encoded(monkeypatch):
    made, driver = launcher(monkeypatch, maps=[WEIGHTS, RESULT])
    bound = bind(made)
    for x, w, y in ((X, W, Y), (X + 4096, W, Y), (X, W, Y + 4096), (X, W, Y)):
        bound.launch(0, [x, w, y])
    assert [entry.base for entry in driver.encoded] == [W, Y, Y + 4096, Y]
    assert [(launch.maps[0], launch.maps[128]) for launch in driver.launches] == [(1, 2), (1, 2), (1, 3), (1, 4)]
    assert [launch.values for launch in driver.launches[1:]] == [
        [X + 4096, W, Y, 0],
        [X, W, Y + 4096, 0],
        [X, W, Y, 0],
    ]


def test_maps_of_streamed_tensors_are_as_long_as_the_rows(monkeypatch):
    made, driver = launcher(monkeypatch, maps=[RESULT])
    for rows in (100, 7):
        run(made, rows)
    assert [entry.dims[2] for entry in driver.encoded] == [100, 7]


def test_a_mapped_input_that_is_not_aligned_is_copied(monkeypatch):
    gpu = FakeGpu()
    made, driver = launcher(monkeypatch, gpu, maps=[WEIGHTS])
    run(made, w=W + 2, stream=5)
    (copy,) = driver.copies
    assert copy[1:] == (W + 2, 512 * 256 * 2, 5)
    assert driver.encoded[0].base == copy[0] == driver.launches[0].values[1]


def test_a_mapped_result_that_is_not_aligned_is_refused(monkeypatch):
    made, _ = launcher(monkeypatch, maps=[RESULT])
    with pytest.raises(InternalError, match="not at a multiple of 16"):
        run(made, y=Y + 8)


@pytest.mark.parametrize(("change", "sentence"), [
    ({"strides": [500]}, r"multiples of 16 bytes, found \[500\]"),
    ({"strides": [1 << 40]}, "multiples of 16 bytes"),
    ({"strides": []}, "one stride less"),
    ({"dims": [1] * 6, "strides": [16] * 5, "box": [8] * 6}, "1 to 5 dims"),
    ({"dims": [256, 0]}, "dims must be 1 to"),
    ({"box": [64, 257]}, "1 to 256 elements"),
    ({"box": [12, 8]}, "at most 128 bytes wide"),
    ({"box": [128, 8]}, "at most 128 bytes wide"),
    ({"box": [12, 8], "swizzle": 0}, "a multiple of 16 bytes wide"),
    ({"swizzle": 16}, "no swizzle 16"),
    ({"element": "f64"}, "no element f64"),
])  # fmt: skip
def test_maps_that_no_gpu_can_use(monkeypatch, change, sentence):
    with pytest.raises(InternalError, match=sentence):
        launcher(monkeypatch, maps=[WEIGHTS | change])


def test_clusters(monkeypatch):
    made, driver = launcher(monkeypatch, cluster=2)
    run(made)
    config = driver.launches[0].config
    (attribute,) = config.attrs
    size = attribute.value.clusterDim
    assert config.numAttrs == 1 and attribute.id == FakeDriver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert (size.x, size.y, size.z) == (2, 1, 1)


@pytest.mark.parametrize(("ctas", "asked"), [(8, {}), (16, {14: 1})])
def test_clusters_that_are_asked_for(monkeypatch, ctas, asked):
    """Those of more than eight CTAs a kernel has to be allowed to have."""
    _, driver = launcher(monkeypatch, cluster=ctas, ctas=64)
    assert driver.attributes == {8: 1000} | asked


def test_clusters_that_a_gpu_does_not_have(monkeypatch):
    driver = FakeDriver()
    driver.fails["cuKernelSetAttribute 14"] = Result.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(UnsupportedError, match="no clusters of 16 CTAs"):
        launcher(monkeypatch, driver=driver, cluster=16, ctas=64)


def test_ctas_are_whole_clusters(monkeypatch):
    with pytest.raises(InternalError, match="132 CTAs in clusters of 8"):
        launcher(monkeypatch, cluster=8)


@pytest.mark.parametrize(("clusters", "cooperative", "fits"), [(66, True, True), (65, True, False), (1, False, True),
                                                               (0, False, False)])  # fmt: skip
def test_residency_of_clusters(monkeypatch, clusters, cooperative, fits):
    driver = FakeDriver()
    driver.clusters = clusters
    if fits:
        made, _ = launcher(monkeypatch, driver=driver, cluster=2, cooperative=cooperative)
        run(made)
        assert len(driver.launches[0].config.attrs) == 1 + cooperative
        return
    needed = 132 if cooperative else 2
    with pytest.raises(UnsupportedError, match=f"needs {needed} CTAs at once, this GPU holds {2 * clusters}"):
        launcher(monkeypatch, driver=driver, cluster=2, cooperative=cooperative)


@pytest.mark.parametrize(("clusters", "strided", "ctas"), [(60, True, 120), (60, False, 132), (70, True, 132)])
def test_clusters_that_fit(monkeypatch, clusters, strided, ctas):
    driver = FakeDriver()
    driver.clusters = clusters
    made, _ = launcher(monkeypatch, driver=driver, cluster=2, strided=strided)
    run(made)
    assert driver.launches[0].config.gridDimX == ctas


def test_residency_of_ctas(monkeypatch):
    made, driver = launcher(monkeypatch, cooperative=True)
    run(made)
    (attribute,) = driver.launches[0].config.attrs
    assert attribute.id == FakeDriver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    assert attribute.value.cooperative == 1
    with pytest.raises(UnsupportedError, match="needs 133 CTAs at once, this GPU holds 132"):
        launcher(monkeypatch, cooperative=True, ctas=133)


def test_one_workspace_a_stream(monkeypatch):
    gpu = FakeGpu()
    made, driver = launcher(monkeypatch, gpu, workspace_bytes=4096)
    for stream in (0, 5, 0, 5):
        run(made, stream=stream)
    assert gpu.allocated == [4096, 4096]
    first, second, *again = [launch.values[3] for launch in driver.launches]
    assert first and second and first != second and again == [first, second]
    assert [launch.config.hStream for launch in driver.launches] == [0, 5, 0, 5]


def test_a_workspace_of_the_caller(monkeypatch):
    gpu = FakeGpu()
    made, driver = launcher(monkeypatch, gpu, workspace_bytes=4096)
    bound = bind(made)
    assert bound.workspace_bytes == 4096
    bound.launch(3, [X, W, Y], 0x700000)
    assert not gpu.allocated and driver.launches[0].values == [X, W, Y, 0x700000]


def test_a_report_of_a_wait_in_vain(monkeypatch):
    watched = [{"awaited": "the tile of queue 'q0': its counter is {0}, wanted {1}", "location": "net.py:7"}]
    made, driver = launcher(monkeypatch, workspace_bytes=4096, watched=watched)
    run(made, stream=3)
    workspace = driver.launches[0].values[3]
    driver.report, driver.zeroed = [1, 0, 12, 5, 1, 2], []
    said = r"'p' hangs: CTA 12 waits, at tile 5, for the tile of queue 'q0': its counter is 1, wanted 2 \(net.py:7\)"
    with pytest.raises(InternalError, match=said):
        run(made, stream=3)
    assert driver.zeroed == [(workspace, 4096, 3)]
    driver.report = []
    run(made, stream=3)


def test_no_rows_no_launch(monkeypatch):
    made, driver = launcher(monkeypatch, maps=[RESULT])
    run(made, rows=0)
    assert not driver.launches and not driver.encoded


def test_a_sum_over_no_rows_has_maps_of_its_weights_alone(monkeypatch):
    made, driver = launcher(monkeypatch, maps=[WEIGHTS, RESULT], sums=True)
    run(made, rows=0, x=0)
    assert len(driver.launches) == 1 and len(driver.encoded) == 1
    run(made, rows=100)
    assert len(driver.launches) == 2 and len(driver.encoded) == 3


def test_rows_must_agree(monkeypatch):
    made, _ = launcher(monkeypatch, streams=[0, 1])
    with pytest.raises(UserError, match="found 100 and 512"):
        run(made)


def test_rows_that_are_not_a_tensors_first_size(monkeypatch):
    """Strides of the dimensions in front of them grow with them."""
    heads = {"tensor": 0, "element": "bf16", "dims": [64, None, 4], "strides": [128, 128]}
    made, driver = launcher(
        monkeypatch, maps=[heads | {"box": [64, 64, 1], "swizzle": 128}], streams=[0, 1], axes=[1, 0], least_rows=2
    )
    made.bind([((4, 100, 64), "bf16"), ((100, 256), "bf16")], [((100,), "f32")]).launch(0, [X, W, Y])
    (launch,), (encoded,) = driver.launches, driver.encoded
    assert (launch.rows, encoded.dims, encoded.strides) == (100, [64, 100, 4], [128, 12800])
    with pytest.raises(UserError, match="found 50 and 100"):
        made.bind([((4, 50, 64), "bf16"), ((100, 256), "bf16")], [((50,), "f32")])
    with pytest.raises(UserError, match="wants 2 or more of what there are 1 of"):
        made.bind([((4, 1, 64), "bf16"), ((1, 256), "bf16")], [((1,), "f32")])


def test_several_open_sizes(monkeypatch):
    """A map's dimensions say which they are of; those behind the first multiply the strides in front of them."""
    heads = {"tensor": 1, "element": "bf16", "dims": [64, None, 4, None], "strides": [128, 128, 512], "open": [2, 1]}
    made, driver = launcher(
        monkeypatch,
        maps=[heads | {"box": [64, 64, 1, 1], "swizzle": 128}],
        **{"streams": [0], "further": [[1, 0], [1, 2]], "least_rows": 1},
    )
    driver.parameters = 1, 7
    shapes = [((100, 64), "bf16"), ((3, 4, 50, 64), "bf16")]
    made.bind(shapes, [((3, 100), "f32")]).launch(0, [X, W, Y])
    (launch,), (encoded,) = driver.launches, driver.encoded
    assert (launch.values[3:], encoded.dims, encoded.strides) == ([0, 100, 3], [64, 50, 4, 3], [128, 6400, 25600])
    with pytest.raises(UserError, match="wants 1 or more of what there are 0 of"):
        made.bind([shapes[0], ((3, 4, 0, 64), "bf16")], [((3, 100), "f32")])
    assert made.bind([shapes[0], ((0, 4, 0, 64), "bf16")], [((0, 100), "f32")]).is_idle


def test_lines_of_an_open_length_are_whole_granules(monkeypatch):
    """Lines of 100 elements are 104 apart, and end where they end."""
    lines = {"tensor": 0, "element": "bf16", "dims": [None, None, 4], "strides": [2, 2], "line": 8}
    made, driver = launcher(monkeypatch, maps=[lines | {"box": [64, 64, 1], "swizzle": 128}], streams=[0], axes=[1])
    made.bind([((4, 100, 104), "bf16"), ((100, 256), "bf16")], [((100,), "f32")]).launch(0, [X, W, Y])
    (encoded,) = driver.encoded
    assert (encoded.dims, encoded.strides) == ([100, 100, 4], [208, 20800])


@pytest.mark.parametrize("function", ["cuLaunchKernelEx", "cuTensorMapEncodeTiled", "cuTensorMapReplaceAddress"])
def test_what_the_driver_says(monkeypatch, function):
    made, driver = launcher(monkeypatch, maps=[WEIGHTS])
    bound = bind(made)
    if function == "cuTensorMapReplaceAddress":
        bound.launch(0, [X, W + 4096, Y])
    driver.fails[function] = Result.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(InternalError, match=f"{function} failed: cuda_error_invalid_value"):
        bound.launch(0, [X, W, Y])
    driver.fails.clear()
    bound.launch(0, [X, W, Y])
    assert driver.launches[-1].maps[:1] == bytes([len(driver.encoded)]), "a map that failed must not be kept"
    assert driver.encoded[-1].base == W


def test_threads_do_not_share_parameters(monkeypatch):
    made, driver = launcher(monkeypatch, maps=[WEIGHTS])
    bound = bind(made)

    def work(number):
        for _ in range(200):
            bound.launch(number, [X + 4096 * number, W + 4096 * number, Y])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(driver.launches) == 800
    for launch in driver.launches:
        number = launch.config.hStream
        assert launch.values[:2] == [X + 4096 * number, W + 4096 * number]
        assert launch.base == launch.values[1], "a launch took the map of another"
