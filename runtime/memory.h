// Memory for tiles: aligned for any vector register, zeroed, freed with its owner.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace kitsune {

class Memory {
public:
  static constexpr std::align_val_t alignment{64};

  explicit Memory(size_t bytes = 0)
      : bytes_(bytes), data_(static_cast<std::byte *>(::operator new(bytes ? bytes : 1, alignment))) {
    clear();
  }

  std::byte *data() const { return data_.get(); }
  size_t size() const { return bytes_; }
  void clear() { std::memset(data_.get(), 0, bytes_); }

private:
  struct Free {
    void operator()(std::byte *data) const { ::operator delete(data, alignment); }
  };

  size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

} // namespace kitsune
