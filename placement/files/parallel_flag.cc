// ParseParallel: the value of --parallel.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/schedule/action_list.h"
#include "placement/files/plan_file.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

constexpr int kMaxCount = 1 << 16;  // ranks, micro-batches

const std::vector<std::string>& Keys() {
  static const auto* const keys = new std::vector<std::string>{
      "dp", "tp", "pp", "zero", "micro", "schedule", "chunks", "recompute", "shares"};
  return *keys;
}

absl::Status Error(const std::string& text, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(
      "parallel '", text, "': ", message, "; expected for example dp=2,tp=1,pp=2 with the keys ",
      absl::StrJoin(Keys(), ", ")));
}

// "all", a number of segments per stage, or patterns joined by "+".
absl::Status SetRecompute(const std::string& text, const std::string& value, Plan& plan) {
  if (value == "all") {
    plan.recompute_segments = 1;
    return absl::OkStatus();
  }
  const bool is_number = value.find_first_not_of("0123456789") == std::string::npos;
  if (is_number) {
    if (absl::SimpleAtoi(value, &plan.recompute_segments) && plan.recompute_segments <= kMaxCount) {
      return absl::OkStatus();
    }
    return Error(text,
                 absl::StrCat("recompute is '", value, "', not all, a number of segments up to ",
                              kMaxCount, " or a pattern of nodes"));
  }
  for (const std::string& pattern : std::vector<std::string>(absl::StrSplit(value, '+'))) {
    if (pattern.empty())
      return Error(text, absl::StrCat("recompute is '", value, "', with an empty pattern"));
    plan.recompute[pattern] = SegmentOfPattern(pattern);
  }
  return absl::OkStatus();
}

// "2:1", for replica 0, 1, ...
absl::Status SetShares(const std::string& text, const std::string& value, Plan& plan) {
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(value, ':'))) {
    int share = 0;
    if (!absl::SimpleAtoi(item, &share) || share < 1 || share > kMaxCount) {
      return Error(text, absl::StrCat("shares is '", value, "', not whole numbers from 1 to ",
                                      kMaxCount, " as in 2:1"));
    }
    plan.shares.push_back(share);
  }
  return absl::OkStatus();
}

absl::Status SetKey(const std::string& text, const std::string& key, const std::string& value,
                    Plan& plan) {
  if (key == "schedule") {
    plan.schedule = value;
    const absl::Status status = CheckScheduleName(value);
    return status.ok() ? status : Error(text, std::string(status.message()));
  }
  if (key == "shares") return SetShares(text, value, plan);
  if (key == "recompute") return SetRecompute(text, value, plan);
  if (key == "zero") {
    if (absl::SimpleAtoi(value, &plan.zero) && plan.zero >= 0 && plan.zero <= 3) {
      return absl::OkStatus();
    }
    return Error(text, absl::StrCat("zero is '", value, "', not 0, 1, 2 or 3"));
  }
  int* target = key == "dp"       ? &plan.mesh.data
                : key == "tp"     ? &plan.mesh.tensor
                : key == "pp"     ? &plan.mesh.pipeline
                : key == "micro"  ? &plan.micro_batches
                : key == "chunks" ? &plan.chunks
                                  : nullptr;
  if (target == nullptr) {
    return Error(text, absl::StrCat("unknown key '", key, "'", DidYouMean(key, Keys())));
  }
  if (absl::SimpleAtoi(value, target) && *target >= 1 && *target <= kMaxCount)
    return absl::OkStatus();
  return Error(text,
               absl::StrCat(key, " is '", value, "', not a whole number from 1 to ", kMaxCount));
}

}  // namespace

absl::StatusOr<Plan> ParseParallel(const std::string& text) {
  Plan plan;
  std::vector<std::string> seen;
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (parts.size() != 2) return Error(text, absl::StrCat("'", item, "' is not KEY=VALUE"));
    for (const std::string& before : seen) {
      if (before == parts[0]) return Error(text, absl::StrCat(parts[0], " comes twice"));
    }
    seen.push_back(parts[0]);
    WEFT_RETURN_IF_ERROR(SetKey(text, parts[0], parts[1], plan));
  }
  if (const absl::Status fits = CheckSchedule(plan.schedule, plan.chunks); !fits.ok()) {
    return Error(text, std::string(fits.message()));
  }
  if (!plan.shares.empty() && std::find(seen.begin(), seen.end(), "dp") == seen.end()) {
    plan.mesh.data = static_cast<int>(plan.shares.size());
  }
  const int64_t ranks = int64_t{plan.mesh.data} * plan.mesh.tensor * plan.mesh.pipeline;
  if (!plan.shares.empty() && static_cast<int>(plan.shares.size()) != plan.mesh.data) {
    return Error(text,
                 absl::StrCat("there are ", plan.shares.size(), " shares for dp=", plan.mesh.data));
  }
  if (ranks > kMaxCount) {
    return Error(text, absl::StrCat(ranks, " ranks are more than there can be"));
  }
  return plan;
}

}  // namespace weft
