// How a kernel divides its workspace. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_WORKSPACE_LAYOUT_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_WORKSPACE_LAYOUT_H_

#include <cstddef>

namespace weft::cuda {

// Hands out pieces that begin at multiples of 64 bytes, as a workspace does.
class WorkspaceLayout {
 public:
  // The offset of a new piece.
  size_t Add(size_t bytes) {
    constexpr size_t kPiece = 64;
    const size_t offset = total_;
    total_ += (bytes + kPiece - 1) / kPiece * kPiece;
    return offset;
  }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
};

// `offset` bytes behind `memory`; null stays null.
inline void* At(void* memory, size_t offset) {
  return memory == nullptr ? nullptr : static_cast<char*>(memory) + offset;
}
inline const void* At(const void* memory, size_t offset) {
  return memory == nullptr ? nullptr : static_cast<const char*>(memory) + offset;
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_WORKSPACE_LAYOUT_H_
