// FakeQuantizeWeight, FakeQuantize, FakeQuantizeGrad, RangeOfBatch, UpdateRange.
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/quantized/fake_quantize_body.h"
#include "ops/kernels/cuda/quantized/fake_quantize_launch.h"
#include "ops/kernels/cuda/quantized/quantized_grid.h"

namespace weft::cuda {
namespace {

// Elements that a thread of LineMaximaBody reads where nothing else says how many.
constexpr int64_t kLine = 64;

int LaunchMaxima(const FakeWeightCall& call) {
  const ScaleGrid& grid = call.grid;
  const auto maxima = reinterpret_cast<uint32_t*>(call.scales);
  if (grid.block == 0 && grid.inner >= kWarp) {
    const int64_t rows = grid.outer * grid.size;
    const int64_t pieces = (grid.inner + RowMaximaBody::kPiece - 1) / RowMaximaBody::kPiece;
    return Launch<kQuantizedThreads>(
        call.queue, QuantizedGrid(rows * pieces * kWarp),
        RowMaximaBody{call.w, maxima, rows, grid.inner, pieces, grid.size});
  }
  LineMaximaBody body{};
  body.w = call.w;
  body.scales = maxima;
  if (grid.block == 0) {  // [outer, size * inner], along outer
    body.size = grid.outer;
    body.inner = grid.size * grid.inner;
    body.length = kLine;
    body.parts = (grid.outer + kLine - 1) / kLine;
    body.lines = body.parts * body.inner;
    body.per_scale = grid.inner;
  } else {
    body.size = grid.size;
    body.inner = grid.inner;
    body.length = grid.block;
    body.parts = grid.blocks;
    body.lines = grid.scales;
    body.per_scale = 0;
  }
  return Launch<kQuantizedThreads>(call.queue, QuantizedGrid(body.lines), body);
}

template <typename Index>
int LaunchFakeWeightBy(const FakeWeightCall& call) {
  const int64_t count = call.grid.elements();
  return Launch<kQuantizedThreads>(
      call.queue, QuantizedGrid(count),
      FakeWeightBody<Index>{call.w, call.scales, call.y, count, call.is_float8,
                            ScaleMap<Index>::Of(call.grid)});
}

}  // namespace

int LaunchFakeWeight(const FakeWeightCall& call) {
  int code = Launch<kQuantizedThreads>(
      call.queue, QuantizedGrid(call.grid.scales),
      ClearBody{reinterpret_cast<uint32_t*>(call.scales), call.grid.scales});
  const int64_t count = call.grid.elements();
  if (code == 0 && count > 0) code = LaunchMaxima(call);
  if (code != 0) return code;
  code = Launch<kQuantizedThreads>(call.queue, QuantizedGrid(call.grid.scales),
                                   FinishScalesBody{call.scales, call.grid.scales, call.limit});
  if (code != 0 || count == 0) return code;
  return HasShortIndices(count) ? LaunchFakeWeightBy<int32_t>(call)
                                : LaunchFakeWeightBy<int64_t>(call);
}

int LaunchFakeQuantize(const FakeQuantizeCall& call) {
  // One thread at least: there is a scale of nothing, too.
  return Launch<kQuantizedThreads>(call.queue, QuantizedGrid(call.count == 0 ? 1 : call.count),
                                   FakeQuantizeBody{call.x, call.range, call.y, call.scale,
                                                    call.zero_point, call.count, call.is_float8});
}

int LaunchFakeQuantizeGrad(const FakeQuantizeCall& call) {
  return Launch<kQuantizedThreads>(
      call.queue, QuantizedGrid(call.count),
      FakeQuantizeGradBody{call.dy, call.x, call.range, call.y, call.count, call.is_float8});
}

int LaunchBatchRange(const BatchRangeCall& call) {
  int code = Launch<kQuantizedThreads>(call.queue, QuantizedGrid(1), ClearBody{call.range, 2});
  if (code != 0) return code;
  code = Launch<kQuantizedThreads>(call.queue, QuantizedGrid(call.count),
                                   ExtremesBody{call.x, call.range, call.count});
  if (code != 0) return code;
  return Launch<kQuantizedThreads>(
      call.queue, QuantizedGrid(2 * call.rows),
      BatchRangeBody{call.range, call.y, call.rows, call.row, call.sharing});
}

int LaunchUpdateRange(LaunchQueue queue, const float* range, const float* x, float* y, int64_t rows,
                      float decay) {
  return Launch<kWarp>(queue, {.blocks = 1, .threads = kWarp},
                       UpdateRangeBody{range, x, y, rows, decay});
}

}  // namespace weft::cuda
