#include "executor/variables/finite_watch.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

// A step's time over what is spent after it.
constexpr int64_t kStepsPerWatch = 100;
// Spent in advance: a second of steps pays for it.
constexpr int64_t kFirstDebtNanos = 10'000'000;
// Small enough for a core's cache, and to end soon.
constexpr int64_t kPieceBytes = int64_t{64} << 10;

}  // namespace

FiniteWatch::FiniteWatch(Clock& clock, VariableStore& variables)
    : clock_(clock),
      variables_(variables),
      next_(watched_.end()),
      credit_nanos_(-kFirstDebtNanos) {}

absl::Status FiniteWatch::Add(const std::vector<std::string>& variables) {
  for (const std::string& name : variables) {
    const VariableShard* const shard = variables_.Find(name);
    if (shard == nullptr) {
      return absl::NotFoundError(absl::StrCat("no variable '", name, "' to watch on this rank"));
    }
    if (!shard->slot_of.empty()) continue;
    const int64_t elements = shard->local_shape.num_elements();
    if (!IsFloatingPoint(shard->dtype) || DTypeBits(shard->dtype) < 16 || elements == 0) continue;
    const bool is_new = watched_.try_emplace(name, Watched{shard->dtype, elements}).second;
    if (is_new) elements_ += elements;
  }
  if (elements_ == 0 || piece_.valid()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(piece_, Tensor::Allocate(DType::kUint8, Shape({kPieceBytes})));
  return absl::OkStatus();
}

absl::Status FiniteWatch::AfterStep(int64_t nanoseconds) {
  if (elements_ == 0) return absl::OkStatus();
  credit_nanos_ += nanoseconds / kStepsPerWatch;
  int64_t seen = 0;
  while (credit_nanos_ >= 0 && seen < elements_) {
    const int64_t begin = clock_.MonotonicNanos();
    WEFT_ASSIGN_OR_RETURN(const int64_t elements, CheckNext());
    seen += elements;
    credit_nanos_ -= clock_.MonotonicNanos() - begin;
  }
  // What a whole round did not need is not saved for later.
  credit_nanos_ = std::min<int64_t>(credit_nanos_, 0);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FiniteWatch::CheckNext() {
  if (next_ == watched_.end()) next_ = watched_.begin();
  const std::string& name = next_->first;
  const Watched& variable = next_->second;
  const int64_t width = DTypeBytes(variable.dtype, 1);
  const int64_t count = std::min(variable.elements - first_, kPieceBytes / width);
  WEFT_RETURN_IF_ERROR(variables_.ReadPart(
      name, first_ * width,
      {static_cast<std::byte*>(piece_.raw_data()), static_cast<size_t>(count * width)}));
  const Tensor piece(variable.dtype, Shape({count}), piece_.buffer(), piece_.offset());
  WEFT_RETURN_IF_ERROR(CheckVariableFinite(name, piece, first_));
  first_ += count;
  if (first_ == variable.elements) {
    ++next_;
    first_ = 0;
  }
  return count;
}

}  // namespace weft
