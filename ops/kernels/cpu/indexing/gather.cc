// Gather and GatherGrad.
#include <algorithm>
#include <cstring>

#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/gather_index.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// A table seen as outer x rows x inner, of which rows are gathered.
struct Table {
  int64_t outer = 1;
  int64_t rows = 0;
  int64_t inner = 1;  // elements
};

absl::StatusOr<int> GatherAxis(const PrepareContext& context, const Shape& table) {
  return NormalizeAxis(context.attributes().Int("axis", 0), table.rank());
}

Table TableOf(const Shape& shape, int axis) {
  return {shape.ProductOf(0, axis), shape.dim(axis), shape.ProductOf(axis + 1, shape.rank())};
}

// ---- Gather

// Rows [begin, end) of the output, where kBytes is the size of a row, or 0: any (`row_bytes`).
template <int kBytes>
void CopyTableRows(const GatherIndices& indices, const KernelContext& run, int64_t table_rows,
                   int64_t row_bytes, int64_t begin, int64_t end) {
  const char* table = static_cast<const char*>(run.inputs[0]);
  char* output = static_cast<char*>(run.outputs[0]);
  int64_t outer = begin / indices.count();
  int64_t i = begin % indices.count();
  for (int64_t row = begin; row < end; ++row) {
    const int64_t from = outer * table_rows + indices.At(run.inputs[1], i);
    if constexpr (kBytes > 0) {
      std::memcpy(output + row * kBytes, table + from * kBytes, kBytes);
    } else {
      std::memcpy(output + row * row_bytes, table + from * row_bytes, row_bytes);
    }
    if (++i == indices.count()) {
      i = 0;
      ++outer;
    }
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGather(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const int axis, GatherAxis(context, context.InputShape(0)));
  const Table table = TableOf(context.InputShape(0), axis);
  const GatherIndices indices(context.InputDType(1), context.InputShape(1), axis, table.rows);
  const int64_t row_bytes = table.inner * width;
  const auto copy_rows = row_bytes == 4   ? CopyTableRows<4>
                         : row_bytes == 8 ? CopyTableRows<8>
                                          : CopyTableRows<0>;
  return MakeKernel([=, threads = context.threads()](const KernelContext& run) {
    WEFT_RETURN_IF_ERROR(indices.Check(run.inputs[1]));
    if (row_bytes == 0) return absl::OkStatus();
    ParallelFor(threads, table.outer * indices.count(), 4 + 0.1 * static_cast<double>(row_bytes), 1,
                [&](int64_t begin, int64_t end) {
                  copy_rows(indices, run, table.rows, row_bytes, begin, end);
                });
    return absl::OkStatus();
  });
}

// ---- GatherGrad

// Columns that one thread takes at least: a cache line of floats.
constexpr int64_t kColumnBlock = 16;

// Adds the gradients' columns [begin, end) of one outer part, in the order of the indices.
template <typename T>
void AddColumns(const Table& table, const GatherIndices& indices, const KernelContext& run,
                int64_t outer, int64_t begin, int64_t end) {
  const T* dy = Input<T>(run, 0) + outer * indices.count() * table.inner;
  T* output = Output<T>(run, 0) + outer * table.rows * table.inner;
  const int64_t count = end - begin;
  for (int64_t row = 0; row < table.rows; ++row) {
    std::fill_n(output + row * table.inner + begin, count, T{0});
  }
  for (int64_t i = 0; i < indices.count(); ++i) {
    const T* source = dy + i * table.inner + begin;
    T* target = output + indices.At(run.inputs[1], i) * table.inner + begin;
#pragma omp simd
    for (int64_t column = 0; column < count; ++column) target[column] += source[column];
  }
}

// The threads share columns, never rows: every sum is made by one thread in the order of the
// indices.
template <typename T>
std::unique_ptr<Kernel> MakeGatherGrad(Table table, GatherIndices indices, int threads) {
  const int64_t blocks = (table.inner + kColumnBlock - 1) / kColumnBlock;
  const double block_cost = 8.0 * static_cast<double>(table.rows + indices.count());
  return MakeKernel([=](const KernelContext& run) {
    WEFT_RETURN_IF_ERROR(indices.Check(run.inputs[1]));
    ParallelFor(threads, table.outer * blocks, block_cost, 1, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t outer = begin / blocks;
        const int64_t first = begin % blocks;
        const int64_t count = std::min(blocks - first, end - begin);
        AddColumns<T>(table, indices, run, outer, first * kColumnBlock,
                      std::min((first + count) * kColumnBlock, table.inner));
        begin += count;
      }
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int axis, GatherAxis(context, context.OutputShape(0)));
  const Table table = TableOf(context.OutputShape(0), axis);
  const GatherIndices indices(context.InputDType(1), context.InputShape(1), axis, table.rows);
  return PrepareByDType(context, context.OutputDType(0), TypeList<float, double>(), [&](auto type) {
    return MakeGatherGrad<decltype(type)>(table, indices, context.threads());
  });
}

WEFT_REGISTER_KERNEL("", "Gather", DeviceKind::kCpu, PrepareGather);
// Bytes are moved, whatever they mean: the kernel is its own reference.
WEFT_REGISTER_REFERENCE_KERNEL("", "Gather", PrepareGather);
WEFT_REGISTER_KERNEL("ai.weft", "GatherGrad", DeviceKind::kCpu, Widened(PrepareGatherGrad));

}  // namespace
}  // namespace weft::cpu
