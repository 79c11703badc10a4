#include "ops/kernels/cpu/attention/blocked_attention.h"

#include <cstdint>
#include <limits>

#include "ops/kernels/cpu/attention/attention_panel.h"
#include "ops/kernels/cpu/attention/panel_operands.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

constexpr double kBlockedNanosecondsPerProduct = 0.012;
constexpr double kBlockedNanosecondsPerScore = 0.5;

class BlockedAttention final : public Kernel {
 public:
  explicit BlockedAttention(const PrepareContext& context)
      : plan_(context), rows_(plan_, context.InputDType(kMask)) {
    tasks_ = plan_.batch * plan_.kv_heads * rows_.panels();
    const double products = static_cast<double>(plan_.key_size + plan_.value_size);
    task_nanoseconds_ = static_cast<double>(PanelRows() * plan_.total) *
                        (kBlockedNanosecondsPerScore + kBlockedNanosecondsPerProduct * products);
    threads_ = UsefulThreads(context.threads(), tasks_, task_nanoseconds_);
    if (plan_.has_past) {
      const int64_t rows = plan_.batch * plan_.kv_heads * plan_.total;
      if (!plan_.wants_present_key) keys_ = Floats(rows * plan_.key_size);
      if (!plan_.wants_present_value) values_ = Floats(rows * plan_.value_size);
    }
    slot_floats_ = AttendPanelScratch(plan_.key_size, plan_.value_size);
    scratch_ = Floats(static_cast<int64_t>(slot_floats_) * threads_);
  }

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& run) override {
    const int64_t* lengths = plan_.has_lengths ? Input<int64_t>(run, kValidLengths) : nullptr;
    WEFT_RETURN_IF_ERROR(plan_.CheckLengths(lengths));
    const float* keys = Joined(run, kPastKey, kKey, plan_.key_size,
                               plan_.wants_present_key ? kPresentKey : -1, keys_);
    const float* values = Joined(run, kPastValue, kValue, plan_.value_size,
                                 plan_.wants_present_value ? kPresentValue : -1, values_);
    float* const scratch = static_cast<float*>(At(run.workspace, scratch_));
    ParallelForSlots(threads_, tasks_, task_nanoseconds_, 1,
                     [&](int slot, int64_t begin, int64_t end) {
                       for (int64_t task = begin; task < end; ++task) {
                         RunPanel(run, lengths, keys, values, task, scratch + slot * slot_floats_);
                       }
                     });
    return absl::OkStatus();
  }

 private:
  size_t Floats(int64_t count) { return layout_.Add(static_cast<size_t>(count) * sizeof(float)); }

  // Writes the output of past and present rows, if it is wanted. Where rows of all heads begin.
  const float* Joined(const KernelContext& run, int past, int now, int64_t size, int output,
                      size_t place) const {
    if (!plan_.has_past && output < 0) return Input<float>(run, now);
    float* rows =
        output >= 0 ? Output<float>(run, output) : static_cast<float*>(At(run.workspace, place));
    plan_.JoinPast(plan_.has_past ? run.inputs[past] : nullptr, run.inputs[now], size,
                   plan_.total * size, sizeof(float), rows);
    return plan_.has_past ? rows : Input<float>(run, now);
  }

  void RunPanel(const KernelContext& run, const int64_t* lengths, const float* keys,
                const float* values, int64_t task, float* scratch) const {
    const int64_t head = task / rows_.panels();
    AttentionPanel panel;
    QueryPlace places[kMaxPanelRows];
    rows_.SetPanel(Input<float>(run, kQuery), plan_.has_mask ? run.inputs[kMask] : nullptr, lengths,
                   head, task % rows_.panels(), panel, places);
    const HeadRows key = plan_.has_past ? rows_.JoinedHeadOf(keys, head, plan_.key_size)
                                        : rows_.HeadOf(keys, head, plan_.key_size);
    const HeadRows value = plan_.has_past ? rows_.JoinedHeadOf(values, head, plan_.value_size)
                                          : rows_.HeadOf(values, head, plan_.value_size);
    panel.keys = key.rows;
    panel.key_stride = key.stride;
    panel.values = value.rows;
    panel.value_stride = value.stride;
    AttentionResult result;
    for (int r = 0; r < panel.rows; ++r) {
      result.rows[r] = Output<float>(run, kAttended) + rows_.QueryRow(places[r], plan_.value_size);
      result.log_sums[r] = nullptr;
    }
    AttendPanel(panel, result, scratch);
  }

  const AttentionPlan plan_;
  const PanelRowsOf rows_;
  int64_t tasks_ = 0;
  double task_nanoseconds_ = 0;
  int threads_ = 1;
  size_t slot_floats_ = 0;
  WorkspaceLayout layout_;
  size_t keys_ = 0, values_ = 0, scratch_ = 0;
};

}  // namespace

bool AttendsInBlocks(const AttentionPlan& plan) {
  return !plan.wants_scores && plan.total < std::numeric_limits<int32_t>::max();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBlockedAttention(const PrepareContext& context) {
  return std::make_unique<BlockedAttention>(context);
}

}  // namespace weft::cpu
