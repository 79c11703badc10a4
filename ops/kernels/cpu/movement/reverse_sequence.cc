// ReverseSequence, any dtype but strings.
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// X as [outer, first, middle, second, inner], where first and second are the two axes.
struct SequencePlan {
  int64_t outer = 1;
  int64_t first = 1;
  int64_t middle = 1;
  int64_t second = 1;
  int64_t inner_bytes = 1;
  bool batch_is_first = false;
  int threads = 1;
  std::string name;

  int64_t batch() const { return batch_is_first ? first : second; }
  int64_t time() const { return batch_is_first ? second : first; }
};

absl::Status CheckLengths(const SequencePlan& plan, const int64_t* lengths) {
  for (int64_t b = 0; b < plan.batch(); ++b) {
    if (lengths[b] >= 0 && lengths[b] <= plan.time()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("node '", plan.name, "' (ReverseSequence): sequence_lens[", b, "] is ",
                     lengths[b], ", the time axis has ", plan.time(), " steps"));
  }
  return absl::OkStatus();
}

void ReverseRow(const SequencePlan& plan, const int64_t* lengths, int64_t row, const char* from,
                char* to) {
  int64_t rest = row;
  const int64_t second = rest % plan.second;
  rest /= plan.second;
  const int64_t middle = rest % plan.middle;
  rest /= plan.middle;
  const int64_t first = rest % plan.first;
  const int64_t outer = rest / plan.first;
  const int64_t length = lengths[plan.batch_is_first ? first : second];
  const int64_t time = plan.batch_is_first ? second : first;
  const int64_t source_time = time < length ? length - 1 - time : time;
  const int64_t source_first = plan.batch_is_first ? first : source_time;
  const int64_t source_second = plan.batch_is_first ? source_time : second;
  const int64_t source =
      ((outer * plan.first + source_first) * plan.middle + middle) * plan.second + source_second;
  std::memcpy(to + row * plan.inner_bytes, from + source * plan.inner_bytes,
              static_cast<size_t>(plan.inner_bytes));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareReverseSequence(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int batch,
                        NormalizeAxis(context.attributes().Int("batch_axis", 1), x.rank()));
  WEFT_ASSIGN_OR_RETURN(const int time,
                        NormalizeAxis(context.attributes().Int("time_axis", 0), x.rank()));
  const int low = std::min(batch, time);
  const int high = std::max(batch, time);
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  SequencePlan plan;
  plan.outer = x.ProductOf(0, low);
  plan.first = x.dim(low);
  plan.middle = x.ProductOf(low + 1, high);
  plan.second = x.dim(high);
  plan.inner_bytes = x.ProductOf(high + 1, x.rank()) * bytes;
  plan.batch_is_first = batch == low;
  plan.threads = context.threads();
  plan.name = context.node().name;
  return MakeKernel([plan](const KernelContext& run) -> absl::Status {
    const int64_t* lengths = Input<int64_t>(run, 1);
    WEFT_RETURN_IF_ERROR(CheckLengths(plan, lengths));
    if (plan.inner_bytes == 0) return absl::OkStatus();
    const int64_t rows = plan.outer * plan.first * plan.middle * plan.second;
    const double nanoseconds = 5 + 0.1 * static_cast<double>(plan.inner_bytes);
    ParallelFor(plan.threads, rows, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        ReverseRow(plan, lengths, row, static_cast<const char*>(run.inputs[0]),
                   static_cast<char*>(run.outputs[0]));
      }
    });
    return absl::OkStatus();
  });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "ReverseSequence", DeviceKind::kCpu, PrepareReverseSequence);

}  // namespace weft::cpu
