// Launches of scatter_body.h. Each returns CUDA's error number.
#ifndef WEFT_OPS_KERNELS_CUDA_INDEXING_SCATTER_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_INDEXING_SCATTER_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// What arrives at an element that is there already. NaN wins over numbers; whole numbers wrap
// around; bool adds as or and multiplies as and.
enum class Arrival : uint8_t { kReplaces, kAdds, kMultiplies, kMax, kMin };

// y = data (or zeros), then for each index in order what it says of the element on its line. Every
// element looks at all indices of its line, so it costs elements of y times the length of a line of
// indices; nothing is sorted, and nothing is written twice.
inline constexpr int kMaxScatterAxes = 8;
struct ScatterElementsCall {
  const void* data = nullptr;  // null: zeros
  IndexInput indices;
  const void* updates = nullptr;
  void* y = nullptr;
  int64_t count = 0;                      // of y
  int64_t size = 0;                       // of y's axis
  int64_t length = 0;                     // of the indices' axis
  int64_t stride = 1;                     // of the indices' axis
  int axes = 0;                           // minor first
  int64_t sizes[kMaxScatterAxes] = {};    // of y
  int64_t limits[kMaxScatterAxes] = {};   // of the indices; that of the axis is its size in y
  int64_t strides[kMaxScatterAxes] = {};  // of the indices; that of the axis is 0
  int axis = 0;                           // its place in these arrays
  FaultReport report;
};
// Any type for kReplaces, by its bytes; else RealLaunches.
int LaunchScatterElements(LaunchQueue queue, DType dtype, int bytes, Arrival arrival,
                          const ScatterElementsCall& call);

// Index tuples: tuple i is `depth` coordinates and names a row of the data.
struct TupleRows {
  const int64_t* indices = nullptr;
  int64_t count = 0;
  int64_t per_batch = 1;   // tuples
  int64_t batch_rows = 0;  // rows of the data in a batch
  int depth = 0;
  int64_t sizes[kMaxScatterAxes] = {};    // of the axes that a tuple indexes
  int64_t strides[kMaxScatterAxes] = {};  // in rows
  DeviceFault* fault = nullptr;
  const char* source = nullptr;
};

// y[i] = the row of x that tuple i names, in units of 1, 2, 4, 8 or 16 bytes; zeros for none.
struct GatherTuplesCall {
  TupleRows tuples;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t row = 0;  // units
};
int LaunchGatherTuples(LaunchQueue queue, int unit, const GatherTuplesCall& call);

// keys[i] = the row that tuple i names, `rows` for none.
int LaunchTupleKeys(LaunchQueue queue, const TupleRows& tuples, int64_t rows, uint32_t* keys);

// The rows of updates arrive in y, those of one row of y in order.
struct ScatterRowsCall {
  const uint32_t* keys = nullptr;  // in order
  const uint32_t* order = nullptr;
  const void* updates = nullptr;
  void* y = nullptr;
  int64_t count = 0;
  int64_t rows = 0;
  int64_t row = 0;  // elements
};
int LaunchScatterRows(LaunchQueue queue, DType dtype, int bytes, Arrival arrival,
                      const ScatterRowsCall& call);

// Runs of `inner` elements of a cache [batch, prefix, positions, inner] become those of updates
// [batch, prefix, updated, inner], from a position of each sample on.
struct CacheCall {
  const void* updates = nullptr;
  const int64_t* starts = nullptr;  // null: 0
  void* cache = nullptr;
  int64_t count = 0;  // elements of updates
  int64_t prefix = 1;
  int64_t positions = 1;
  int64_t updated = 1;
  int64_t inner = 1;
  FaultReport report;  // of starts
};
int LaunchCache(LaunchQueue queue, int bytes, const CacheCall& call);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_INDEXING_SCATTER_LAUNCH_H_
