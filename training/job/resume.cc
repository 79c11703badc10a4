#include "training/job/resume.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/variables/checkpoint_writer.h"
#include "nlohmann/json.hpp"
#include "platform/checksum.h"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// So many names are told.
constexpr size_t kMaxNames = 5;

// The text without the paths of files, which may have moved.
Json WithoutPaths(Json json) {
  if (json.is_object()) json.erase("path");
  if (json.is_structured()) {
    for (Json& value : json) value = WithoutPaths(std::move(value));
  }
  return json;
}

// A data set as far as it decides what is read: how far ahead, and by how many threads, does not.
Json ParseData(const std::string& text) {
  if (!CheckJsonLimits(text).ok()) return Json();
  Json json = WithoutPaths(Json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (json.is_object()) {
    json.erase("prefetch");
    json.erase("reader_threads");
  }
  return json;
}

std::string Shown(const Json& json, const std::string& key) {
  return json.is_object() && json.contains(key)
             ? json[key].dump(-1, ' ', false, Json::error_handler_t::replace)
             : "nothing";
}

void AddDataDifferences(const CheckpointJob& saved, const CheckpointJob& now,
                        std::vector<std::string>& lines) {
  const Json before = ParseData(saved.data), after = ParseData(now.data);
  std::set<std::string> keys;
  for (const Json* json : {&before, &after}) {
    for (const auto& [key, value] : json->items()) keys.insert(key);
  }
  for (const std::string& key : keys) {
    const std::string was = Shown(before, key), is = Shown(after, key);
    if (was != is) lines.push_back(absl::StrCat("the data's ", key, " was ", was, ", is ", is));
  }
}

std::string NamesText(const std::set<std::string>& names) {
  std::vector<std::string> shown(names.begin(), names.end());
  const size_t count = shown.size();
  shown.resize(std::min(count, kMaxNames));
  return absl::StrCat("'", absl::StrJoin(shown, "', '"), "'",
                      count > kMaxNames ? absl::StrCat(" and ", count - kMaxNames, " more") : "");
}

std::set<std::string> Missing(const std::set<std::string>& wanted,
                              const std::set<std::string>& present) {
  std::set<std::string> missing;
  std::set_difference(wanted.begin(), wanted.end(), present.begin(), present.end(),
                      std::inserter(missing, missing.begin()));
  return missing;
}

// Records of older programs say nothing of parameters.
void AddParameterDifference(const CheckpointJob& saved, const CheckpointJob& now,
                            std::vector<std::string>& lines) {
  if (saved.trained.empty() || now.trained.empty()) return;
  const std::set<std::string> was(saved.trained.begin(), saved.trained.end());
  const std::set<std::string> is(now.trained.begin(), now.trained.end());
  const std::set<std::string> fewer = Missing(was, is), more = Missing(is, was);
  if (!fewer.empty()) lines.push_back(absl::StrCat(NamesText(fewer), " trained, now not"));
  if (!more.empty()) lines.push_back(absl::StrCat(NamesText(more), " did not train, now does"));
}

}  // namespace

std::vector<std::string> JobDifferences(const CheckpointJob& saved, const CheckpointJob& now) {
  std::vector<std::string> lines;
  if (saved.model_checksum != now.model_checksum) lines.push_back("the model file has changed");
  if (saved.weights_checksum != now.weights_checksum) {
    lines.push_back("the model's weights have changed");
  }
  AddDataDifferences(saved, now, lines);
  const std::vector<std::string> flags = FlagDifferences(saved.flags, now.flags);
  lines.insert(lines.end(), flags.begin(), flags.end());
  AddParameterDifference(saved, now, lines);
  return lines;
}

uint64_t JobDigest(const CheckpointJob& job) {
  std::string text = absl::StrCat(job.model_checksum, " ", job.weights_checksum, "\n");
  // By sorted keys.
  absl::StrAppend(&text, ParseData(job.data).dump(-1, ' ', false, Json::error_handler_t::replace));
  for (const auto& [flag, values] : job.flags) {
    const std::string value = values.content.has_value() ? absl::StrCat("content ", *values.content)
                                                         : absl::StrJoin(values.values, "\x1f");
    absl::StrAppend(&text, "\n", flag, "=", value);
  }
  for (const std::string& name : std::set<std::string>(job.trained.begin(), job.trained.end())) {
    absl::StrAppend(&text, "\n", name.size(), ":", name);
  }
  return std::max<uint64_t>(1, Checksum(std::as_bytes(std::span(text))));
}

uint64_t WeightsChecksum(const Graph& graph) {
  std::map<std::string, uint64_t> sums;
  for (const Variable& variable : graph.variables()) {
    if (!variable.initial.valid()) continue;
    sums[variable.name] = MappedChecksum(
        {static_cast<const std::byte*>(variable.initial.raw_data()), variable.initial.bytes()});
  }
  std::string text;
  for (const auto& [name, sum] : sums)
    absl::StrAppend(&text, name.size(), ":", name, "=", sum, ";");
  return Checksum(std::as_bytes(std::span(text)));
}

absl::Status Restore(Coordinator& coordinator, const PreparedJob& job, StateSource& source) {
  std::set<std::string> wanted, stored;
  for (const JobProgram& program : job.programs) {
    for (const Partition& partition : program.partitions) {
      for (const std::string& name : CheckpointedVariables(partition)) wanted.insert(name);
    }
  }
  for (std::string& name : source.names()) stored.insert(std::move(name));
  const std::set<std::string> missing = Missing(wanted, stored), unknown = Missing(stored, wanted);
  if (!missing.empty() || !unknown.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(source.text(), " is of another job: ",
                     missing.empty() ? "" : absl::StrCat("it lacks ", NamesText(missing)),
                     missing.empty() || unknown.empty() ? "" : ", and ",
                     unknown.empty() ? "" : absl::StrCat("the job has no ", NamesText(unknown))));
  }
  for (const std::string& name : stored) {
    WEFT_ASSIGN_OR_RETURN(Tensor whole, source.Read(name));
    WEFT_RETURN_IF_ERROR(coordinator.WriteVariables({{name, std::move(whole)}}));
  }
  return absl::OkStatus();
}

absl::Status Restore(Coordinator& coordinator, const PreparedJob& job,
                     const Checkpoint& checkpoint) {
  CheckpointSource source(checkpoint);
  return Restore(coordinator, job, source);
}

}  // namespace weft
