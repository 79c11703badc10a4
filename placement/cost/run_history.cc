#include "placement/cost/run_history.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNewest = 9;        // runs of a plan
constexpr double kMaxRatio = 1e9;    // of a step that was measured to one that was predicted
constexpr double kMaxSeconds = 1e9;  // of a step
constexpr int64_t kMinSteps = 10;    // of a run that counts

Json ToJson(const StepCosts& costs) {
  return {{"step_seconds", costs.step_seconds},
          {"compute_seconds", costs.compute_seconds},
          {"communication_seconds", costs.communication_seconds},
          {"bytes_sent", costs.bytes_sent},
          {"memory_bytes", costs.memory_bytes}};
}

// Fills members from an object; the first that has another type is remembered.
class ObjectReader {
 public:
  explicit ObjectReader(const Json& object) : object_(object) {}

  template <typename T>
  void Read(const char* key, T& value) {
    const auto member = object_.find(key);
    if (member == object_.end()) return;
    if (!Fits(*member, value)) {
      if (wrong_.empty()) wrong_ = key;
      return;
    }
    value = member->template get<T>();
  }
  void ReadHex(const char* key, uint64_t& value) {
    std::string text;
    Read(key, text);
    if (!text.empty() && !absl::SimpleHexAtoi(text, &value) && wrong_.empty()) wrong_ = key;
  }
  void ReadCosts(const char* key, StepCosts& costs) {
    const auto member = object_.find(key);
    if (member == object_.end() || !member->is_object()) {
      if (wrong_.empty()) wrong_ = key;
      return;
    }
    ObjectReader inner(*member);
    inner.Read("step_seconds", costs.step_seconds);
    inner.Read("compute_seconds", costs.compute_seconds);
    inner.Read("communication_seconds", costs.communication_seconds);
    inner.Read("bytes_sent", costs.bytes_sent);
    inner.Read("memory_bytes", costs.memory_bytes);
    if (wrong_.empty() && !inner.wrong_.empty()) wrong_ = absl::StrCat(key, ".", inner.wrong_);
  }
  const std::string& wrong() const { return wrong_; }

 private:
  static bool Fits(const Json& json, const std::string&) { return json.is_string(); }
  static bool Fits(const Json& json, double) { return json.is_number(); }
  static bool Fits(const Json& json, int64_t) { return json.is_number_integer(); }
  static bool Fits(const Json& json, const std::vector<int64_t>&) {
    return json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& item) {
             return item.is_number_integer();
           });
  }

  const Json& object_;
  std::string wrong_;
};

absl::StatusOr<RunHistoryEntry> ParseEntry(const std::string& line) {
  WEFT_RETURN_IF_ERROR(CheckJsonLimits(line));
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  RunHistoryEntry entry;
  ObjectReader reader(json);
  reader.Read("time", entry.time);
  reader.Read("model", entry.model);
  reader.ReadHex("model_digest", entry.model_digest);
  reader.ReadHex("cluster_digest", entry.cluster_digest);
  reader.Read("plan", entry.plan);
  reader.Read("steps", entry.steps);
  reader.Read("factor", entry.factor);
  reader.Read("input_seconds", entry.input_seconds);
  reader.ReadCosts("predicted", entry.predicted);
  reader.ReadCosts("measured", entry.measured);
  if (!reader.wrong().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", reader.wrong(), "' is missing or of another type than a history has"));
  }
  // Corrections divide by these.
  if (!(entry.factor >= 1 / kMaxRatio && entry.factor <= kMaxRatio)) {
    return absl::InvalidArgumentError(absl::StrCat("'factor' is ", entry.factor, ", expected ",
                                                   1 / kMaxRatio, " to ", kMaxRatio));
  }
  for (const StepCosts* const costs : {&entry.predicted, &entry.measured}) {
    if (costs->step_seconds >= 0 && costs->step_seconds <= kMaxSeconds) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'step_seconds' is ", costs->step_seconds, ", expected 0 to ", kMaxSeconds));
  }
  return entry;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

std::string RunHistoryLine(const RunHistoryEntry& entry) {
  const Json json = {{"time", entry.time},
                     {"model", entry.model},
                     {"model_digest", absl::StrFormat("%016x", entry.model_digest)},
                     {"cluster_digest", absl::StrFormat("%016x", entry.cluster_digest)},
                     {"plan", entry.plan},
                     {"steps", entry.steps},
                     {"predicted", ToJson(entry.predicted)},
                     {"factor", entry.factor},
                     {"measured", ToJson(entry.measured)},
                     {"input_seconds", entry.input_seconds}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::vector<RunHistoryEntry>> ParseRunHistory(const std::string& text,
                                                             const std::string& file_name) {
  std::vector<RunHistoryEntry> entries;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    absl::StatusOr<RunHistoryEntry> entry = ParseEntry(std::string(line));
    if (!entry.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_name, ":", number, ": ", entry.status().message()));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

CostCorrections CorrectionsOf(const std::vector<RunHistoryEntry>& history, uint64_t cluster_digest,
                              uint64_t model_digest) {
  std::map<std::string, std::vector<double>> ratios;  // by plan, the newest first
  for (auto entry = history.rbegin(); entry != history.rend(); ++entry) {
    const double raw = entry->predicted.step_seconds / entry->factor;
    const bool counts = entry->cluster_digest == cluster_digest &&
                        entry->model_digest == model_digest && entry->steps >= kMinSteps &&
                        raw > 0 && entry->measured.step_seconds > 0;
    std::vector<double>& plan = ratios[entry->plan];
    if (counts && plan.size() < kNewest) plan.push_back(entry->measured.step_seconds / raw);
  }
  CostCorrections corrections;
  std::vector<double> factors;
  for (auto& [plan, of_runs] : ratios) {
    if (of_runs.empty()) continue;
    corrections.runs += static_cast<int>(of_runs.size());
    factors.push_back(Median(std::move(of_runs)));
    corrections.plans[plan] = factors.back();
  }
  if (!factors.empty()) corrections.step = Median(std::move(factors));
  return corrections;
}

}  // namespace weft
