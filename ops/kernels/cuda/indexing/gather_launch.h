// Launches of gather_body.h. Each returns CUDA's error number.
#ifndef WEFT_OPS_KERNELS_CUDA_INDEXING_GATHER_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_INDEXING_GATHER_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/broadcast.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/indexing/index_sort_launch.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Rows of a table [outer, rows, row], the row in units of 1, 2, 4, 8 or 16 bytes.
struct GatherCall {
  const void* table = nullptr;
  IndexInput indices;  // `count`, in [-rows, rows); the report says so
  void* y = nullptr;   // [outer, count, row]
  int64_t outer = 1;
  int64_t rows = 0;
  int64_t count = 0;
  int64_t row = 0;
  FaultReport report;
};
int LaunchGather(LaunchQueue queue, int unit, const GatherCall& call);

// keys[i] = the row that index i names, `rows` where it names none. Also clears `named`.
struct RowKeysCall {
  IndexInput indices;
  uint32_t* keys = nullptr;
  uint8_t* named = nullptr;  // [rows]
  int64_t rows = 0;
  int64_t count = 0;
  FaultReport report;
};
int LaunchRowKeys(LaunchQueue queue, const RowKeysCall& call);

// dx[outer, rows, inner] = sums of the rows of dy[outer, count, inner] that a row of keys names,
// zeros in rows that none names: each element is written once. Sums are in the order of the
// indices, with runs of kSumRun of them. `named` begins as zeros; it becomes 1 for a row that a key
// names.
inline constexpr int64_t kSumRun = 32;
struct SumRowsCall {
  const void* dy = nullptr;
  const uint32_t* keys = nullptr;  // in order
  const uint32_t* order = nullptr;
  void* partial = nullptr;   // SumRowsBytes
  uint8_t* named = nullptr;  // [rows]
  void* dx = nullptr;
  int64_t outer = 1;
  int64_t rows = 0;
  int64_t count = 0;
  int64_t inner = 0;
  int unit = 1;  // bytes: 1 to 16; a row of dx and its address are multiples of it
};
size_t SumRowsBytes(DType dtype, int64_t outer, int64_t count, int64_t inner);
int LaunchSumRows(LaunchQueue queue, DType dtype, const SumRowsCall& call);

// y[i] = x[offset of i without the axis + index i times the stride of the axis].
struct GatherElementsCall {
  const void* x = nullptr;
  IndexInput indices;
  void* y = nullptr;
  int64_t count = 0;
  int64_t size = 0;    // of the axis of x
  int64_t stride = 1;  // of the axis of x
  BroadcastMap<1, int64_t> map;
  BroadcastMap<1, int32_t> small;
  bool has_small_indices = false;
  FaultReport report;
};
int LaunchGatherElements(LaunchQueue queue, int bytes, const GatherElementsCall& call);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_INDEXING_GATHER_LAUNCH_H_
