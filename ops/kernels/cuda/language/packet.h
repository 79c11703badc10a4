// Neighbours in memory that one instruction reads or writes.
#ifndef WEFT_OPS_KERNELS_CUDA_LANGUAGE_PACKET_H_
#define WEFT_OPS_KERNELS_CUDA_LANGUAGE_PACKET_H_

#include <type_traits>

namespace weft::cuda {

template <typename T>
using Plain = std::remove_cv_t<T>;

// N elements, aligned as a whole. N * sizeof(T) is 2, 4, 8 or 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N) Packet {
  T values[N];
};

// Elements of T in the widest access of a thread: 16 bytes.
template <typename T>
inline constexpr int kWidest = 16 / static_cast<int>(sizeof(T));

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LANGUAGE_PACKET_H_
