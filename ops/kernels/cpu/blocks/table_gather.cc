#include "ops/kernels/cpu/blocks/table_gather.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"

namespace weft::cpu {
namespace {

bool IsIdentity(const std::vector<int64_t>& table, int64_t size) {
  if (static_cast<int64_t>(table.size()) != size) return false;
  for (int64_t i = 0; i < size; ++i) {
    if (table[i] != i) return false;
  }
  return true;
}

struct Sixteen {
  uint64_t halves[2];
};

template <typename Word>
void FillWords(const void* fill, int64_t count, char* to) {
  Word word;
  std::memcpy(&word, fill, sizeof(word));
  std::fill_n(reinterpret_cast<Word*>(to), count, word);
}

void FillElements(const void* fill, int width, int64_t count, char* to) {
  switch (width) {
    case 1:
      return FillWords<uint8_t>(fill, count, to);
    case 2:
      return FillWords<uint16_t>(fill, count, to);
    case 4:
      return FillWords<uint32_t>(fill, count, to);
    case 8:
      return FillWords<uint64_t>(fill, count, to);
    default:
      return FillWords<Sixteen>(fill, count, to);
  }
}

template <typename Word>
void GatherWords(const std::vector<int64_t>& table, const char* from, const void* fill, char* to) {
  Word word;
  std::memcpy(&word, fill, sizeof(word));
  const Word* const source = reinterpret_cast<const Word*>(from);
  Word* const target = reinterpret_cast<Word*>(to);
  for (size_t i = 0; i < table.size(); ++i) target[i] = table[i] < 0 ? word : source[table[i]];
}

}  // namespace

TableGather::TableGather(const Shape& from, std::vector<std::vector<int64_t>> tables,
                         int element_bytes)
    : width_(element_bytes) {
  // Whole axes at the end belong to one run.
  int axis = from.rank();
  int64_t run = 1;
  while (axis > 0 && IsIdentity(tables[axis - 1], from.dim(axis - 1))) run *= from.dim(--axis);
  int64_t stride = run;  // of the source, in elements
  if (axis > 0) {
    const std::vector<int64_t>& last = tables[--axis];
    stride *= from.dim(axis);
    row_elements_ = static_cast<int64_t>(last.size()) * run;
    for (size_t i = 0; i < last.size(); ++i) {
      const int64_t source = last[i] < 0 ? -1 : last[i] * run;
      Segment* const before = segments_.empty() ? nullptr : &segments_.back();
      const bool joins = before != nullptr &&
                         (source < 0 ? before->from < 0
                                     : before->from >= 0 && before->from + before->count == source);
      if (joins) {
        before->count += run;
      } else {
        segments_.push_back(Segment{static_cast<int64_t>(i) * run, source, run});
      }
    }
    if (run == 1 && static_cast<int64_t>(segments_.size()) * 4 > row_elements_) gather_ = last;
  } else {
    row_elements_ = run;
    if (run > 0) segments_.push_back(Segment{0, 0, run});
  }
  outer_.resize(axis);
  while (axis-- > 0) {
    rows_ *= static_cast<int64_t>(tables[axis].size());
    for (const int64_t index : tables[axis]) {
      outer_[axis].push_back(index < 0 ? -1 : index * stride * width_);
    }
    stride *= from.dim(axis);
  }
  if (row_elements_ == 0) rows_ = 0;
}

int64_t TableGather::RowSource(int64_t row) const {
  int64_t offset = 0;
  for (size_t axis = outer_.size(); axis-- > 0;) {
    const int64_t size = static_cast<int64_t>(outer_[axis].size());
    const int64_t step = outer_[axis][row % size];
    row /= size;
    if (step < 0) return -1;
    offset += step;
  }
  return offset;
}

void TableGather::CopyRow(const char* from, const void* fill, char* to) const {
  if (!gather_.empty()) {
    switch (width_) {
      case 1:
        return GatherWords<uint8_t>(gather_, from, fill, to);
      case 2:
        return GatherWords<uint16_t>(gather_, from, fill, to);
      case 4:
        return GatherWords<uint32_t>(gather_, from, fill, to);
      case 8:
        return GatherWords<uint64_t>(gather_, from, fill, to);
      default:
        return GatherWords<Sixteen>(gather_, from, fill, to);
    }
  }
  for (const Segment& segment : segments_) {
    char* const target = to + segment.to * width_;
    if (segment.from < 0) {
      FillElements(fill, width_, segment.count, target);
    } else {
      std::memcpy(target, from + segment.from * width_,
                  static_cast<size_t>(segment.count * width_));
    }
  }
}

void TableGather::Run(const void* from, const void* fill, void* to, int threads) const {
  const char* const source = static_cast<const char*>(from);
  char* const target = static_cast<char*>(to);
  const int64_t row_bytes = row_elements_ * width_;
  const double nanoseconds = 5 + 0.2 * static_cast<double>(row_bytes);
  ParallelFor(threads, rows_, nanoseconds, 1, [&](int64_t begin, int64_t end) {
    int64_t before = -2;  // the source of the row before, to copy again
    for (int64_t row = begin; row < end; ++row) {
      char* const out = target + row * row_bytes;
      const int64_t offset = RowSource(row);
      if (offset == before) {
        std::memcpy(out, out - row_bytes, static_cast<size_t>(row_bytes));
      } else if (offset < 0) {
        FillElements(fill, width_, row_elements_, out);
      } else {
        CopyRow(source + offset, fill, out);
      }
      before = offset;
    }
  });
}

namespace {

// Elements smaller than a byte, one per byte (value in the low bits) and back.
void Unpack(const uint8_t* packed, int bits, int64_t count, uint8_t* bytes) {
  for (int64_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<uint8_t>(PackedElement(packed, bits, i));
  }
}

void Pack(const uint8_t* bytes, int bits, int64_t count, uint8_t* packed) {
  std::fill_n(packed, (count * bits + 7) / 8, uint8_t{0});
  for (int64_t i = 0; i < count; ++i) SetPackedElement(packed, bits, i, bytes[i]);
}

std::unique_ptr<Kernel> MakePackedGather(const PrepareContext& context, int bits,
                                         TableGather gather, int fill_input) {
  const int64_t inputs = context.InputShape(0).num_elements();
  const int64_t outputs = context.OutputShape(0).num_elements();
  const int threads = context.threads();
  WorkspaceLayout layout;
  const size_t from = layout.Add(inputs);
  const size_t to = layout.Add(outputs);
  return MakeKernel(
      [=](const KernelContext& run) {
        uint8_t* const source = static_cast<uint8_t*>(At(run.workspace, from));
        uint8_t* const target = static_cast<uint8_t*>(At(run.workspace, to));
        Unpack(static_cast<const uint8_t*>(run.inputs[0]), bits, inputs, source);
        uint8_t fill = 0;
        if (fill_input >= 0) {
          Unpack(static_cast<const uint8_t*>(run.inputs[fill_input]), bits, 1, &fill);
        }
        gather.Run(source, &fill, target, threads);
        Pack(target, bits, outputs, static_cast<uint8_t*>(run.outputs[0]));
        return absl::OkStatus();
      },
      layout.total());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeTableGather(const PrepareContext& context,
                                                        std::vector<std::vector<int64_t>> tables,
                                                        int fill_input) {
  static constexpr uint64_t kZero[2] = {0, 0};
  const DType dtype = context.InputDType(0);
  if (fill_input >= 0 && !context.HasInput(fill_input)) fill_input = -1;
  const int bits = DTypeBits(dtype);
  if (bits > 0 && bits < 8) {
    return MakePackedGather(context, bits, TableGather(context.InputShape(0), std::move(tables), 1),
                            fill_input);
  }
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, dtype));
  const TableGather gather(context.InputShape(0), std::move(tables), bytes);
  const int threads = context.threads();
  return MakeKernel([=](const KernelContext& run) {
    const void* const fill =
        fill_input < 0 ? static_cast<const void*>(kZero) : run.inputs[fill_input];
    gather.Run(run.inputs[0], fill, run.outputs[0], threads);
    return absl::OkStatus();
  });
}

}  // namespace weft::cpu
