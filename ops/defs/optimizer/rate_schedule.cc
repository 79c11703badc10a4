#include "ops/defs/optimizer/rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/optimizer/update_operands.h"

namespace weft {
namespace {

// Of the way from `from` to `to` along half a cosine; share 0 to 1.
double CosineBetween(double from, double to, double share) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

// The part of the decay that is behind step u after the warm-up, 0 to 1.
double Progress(const RateSchedule& schedule, double u) {
  const auto length = static_cast<double>(schedule.total - schedule.warmup);
  return length > 0 ? std::min(1.0, u / length) : 1.0;
}

double Constant(const RateSchedule&, double) { return 1; }

double Step(const RateSchedule& schedule, double u) {
  return std::pow(schedule.gamma, std::floor(u / static_cast<double>(schedule.every)));
}

double Exponential(const RateSchedule& schedule, double u) { return std::pow(schedule.gamma, u); }

double Linear(const RateSchedule& schedule, double u) {
  return 1 + (schedule.end - 1) * Progress(schedule, u);
}

double Cosine(const RateSchedule& schedule, double u) {
  return CosineBetween(1, schedule.end, Progress(schedule, u));
}

double Polynomial(const RateSchedule& schedule, double u) {
  return schedule.end + (1 - schedule.end) * std::pow(1 - Progress(schedule, u), schedule.power);
}

double OneCycle(const RateSchedule& schedule, double u) {
  constexpr double kFirst = 1.0 / 25;
  constexpr double kLast = kFirst * 1e-4;
  const auto total = static_cast<double>(schedule.total);
  const double peak = 0.3 * total - 1;
  if (u <= peak) return CosineBetween(kFirst, 1, u / peak);
  const double length = total - 1 - peak;
  return CosineBetween(1, kLast, length > 0 ? std::min(1.0, (u - peak) / length) : 1.0);
}

struct ScheduleKind {
  double (*factor)(const RateSchedule&, double u);
  bool needs_total;
};

const std::map<std::string, ScheduleKind>& ScheduleKinds() {
  static const auto* const kKinds = new std::map<std::string, ScheduleKind>{
      {"constant", {Constant, false}},
      {"cosine", {Cosine, true}},
      {"exponential", {Exponential, false}},
      {"linear", {Linear, true}},
      {"one_cycle", {OneCycle, true}},
      {"polynomial", {Polynomial, true}},
      {"step", {Step, false}},
  };
  return *kKinds;
}

absl::Status OutOfRange(const char* name, double value, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("the schedule's ", name, " is ", value, ", expected ", expected));
}

}  // namespace

bool RateSchedule::needs_total() const {
  const auto found = ScheduleKinds().find(kind);
  return found != ScheduleKinds().end() && found->second.needs_total;
}

std::vector<std::string> RateScheduleKinds() {
  std::vector<std::string> kinds;
  for (const auto& [name, kind] : ScheduleKinds()) kinds.push_back(name);
  return kinds;
}

absl::Status ValidateRateSchedule(const RateSchedule& schedule) {
  const auto found = ScheduleKinds().find(schedule.kind);
  if (found == ScheduleKinds().end()) {
    return absl::InvalidArgumentError(absl::StrCat("no schedule '", schedule.kind, "'; there are: ",
                                                   absl::StrJoin(RateScheduleKinds(), ", ")));
  }
  if (schedule.warmup < 0) {
    return OutOfRange("warm-up", static_cast<double>(schedule.warmup), "0 or more steps");
  }
  if (schedule.every < 1) {
    return OutOfRange("interval", static_cast<double>(schedule.every), "1 or more steps");
  }
  if (!(schedule.gamma > 0 && schedule.gamma <= 1)) {
    return OutOfRange("gamma", schedule.gamma, "a number in (0, 1]");
  }
  if (!(schedule.power > 0)) return OutOfRange("power", schedule.power, "a number above 0");
  if (!(schedule.end >= 0 && schedule.end <= 1)) {
    return OutOfRange("last factor", schedule.end, "a number in [0, 1]");
  }
  if (found->second.needs_total && schedule.total <= schedule.warmup) {
    return absl::InvalidArgumentError(absl::StrCat("a ", schedule.kind, " schedule of ",
                                                   schedule.total, " steps, warm-up of ",
                                                   schedule.warmup,
                                                   " included, has none left; it needs the number "
                                                   "of steps of the whole run (--schedule-steps)"));
  }
  if (schedule.kind == "one_cycle" && schedule.warmup > 0) {
    return absl::InvalidArgumentError("one_cycle warms up by itself; leave the warm-up out");
  }
  return absl::OkStatus();
}

double RateFactor(const RateSchedule& schedule, int64_t step) {
  if (step < schedule.warmup) {
    return static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  }
  const auto found = ScheduleKinds().find(schedule.kind);
  const auto u = static_cast<double>(step - schedule.warmup);
  return found == ScheduleKinds().end() ? 1 : found->second.factor(schedule, u);
}

Attributes ToAttributes(const RateSchedule& schedule) {
  return {{"kind", schedule.kind},
          {"warmup", schedule.warmup},
          {"total", schedule.total},
          {"every", schedule.every},
          {"gamma", static_cast<float>(schedule.gamma)},
          {"power", static_cast<float>(schedule.power)},
          {"end", static_cast<float>(schedule.end)}};
}

RateSchedule RateScheduleOf(const Attributes& attributes) {
  RateSchedule schedule;
  schedule.kind = attributes.String("kind", schedule.kind);
  schedule.warmup = attributes.Int("warmup", 0);
  schedule.total = attributes.Int("total", 0);
  schedule.every = attributes.Int("every", 1);
  schedule.gamma = Hyperparameter(attributes, "gamma", schedule.gamma);
  schedule.power = Hyperparameter(attributes, "power", schedule.power);
  schedule.end = Hyperparameter(attributes, "end", schedule.end);
  return schedule;
}

}  // namespace weft
