// Arbitrary text as each of the small files that people and programs write: plans, clusters,
// profiles, job files, histories. The first byte says which; what is read is written and read
// again, where the format has both ways.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "placement/cost/profile_file.h"
#include "placement/cost/run_history.h"
#include "placement/files/plan_file.h"
#include "platform/file_system.h"
#include "platform/testing/fake_file_system.h"
#include "platform/text/name_pattern.h"
#include "platform/text/units.h"
#include "tools/flags/job_file.h"
#include "tools/reports/map_json.h"
#include "training/adapters/peft_config.h"
#include "training/data/data_spec.h"
#include "training/job/partition_folder.h"

namespace weft {
namespace {

// Ends the process: what was written cannot be read, or says something else.
void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void TakePlan(const std::string& text) {
  const auto plan = ParsePlanFile(text, "plan.yaml");
  if (!plan.ok()) return;
  const std::string written = PlanToYaml(*plan);
  const auto again = ParsePlanFile(written, "again.yaml");
  Require(again.ok() && PlanToYaml(*again) == written, "a plan changes when it is written");
}

void TakeProfile(const std::string& text) {
  const auto profile = ParseProfileFile(text, "profile.yaml");
  if (!profile.ok()) return;
  const auto again = ParseProfileFile(ProfileToYaml(*profile), "again.yaml");
  Require(again.ok(), "a profile that is written cannot be read");
}

void TakeHistory(const std::string& text) {
  const auto history = ParseRunHistory(text, "history.jsonl");
  if (!history.ok()) return;
  (void)CorrectionsOf(*history, 1, 2);
  for (const RunHistoryEntry& entry : *history) {
    Require(ParseRunHistory(RunHistoryLine(entry), "again.jsonl").ok(),
            "a history that is written cannot be read");
  }
}

void TakeData(const std::string& text) {
  const auto data = DataSpec::FromJson(text);
  if (!data.ok()) return;
  const std::string written = data->ToJson();
  const auto again = DataSpec::FromJson(written);
  Require(again.ok() && again->ToJson() == written, "data change when they are written");
}

void TakeAdapters(const std::string& text) {
  const auto config = ParsePeftConfig(text, "adapter_config.json");
  if (config.ok()) (void)config->ScaleOf("h.0.attn", 8);
}

void TakePartitions(const std::string& text) {
  testing::FakeFileSystem files;
  (void)files.CreateDirectories("dump");
  (void)files.WriteFileAtomically("dump/job.json", text);
  (void)files.WriteFileAtomically("dump/plan.yaml", "version: 1\nmesh: {data: 1}\nworkers: [0]\n");
  (void)ReadPartitionFolder(files, "dump");
}

// As `train --config` reads one: from a file, into options.
void TakeJob(const std::string& text) {
  static const std::string* const path = new std::string(absl::StrCat(
      std::filesystem::temp_directory_path().string(), "/weft-fuzz-", getpid(), ".yaml"));
  if (!RealFileSystem().WriteFileAtomically(*path, text).ok()) return;
  CLI::App app;
  bool print = false;
  int steps = 0;
  std::string model;
  std::vector<std::string> data;
  app.add_option("MODEL", model);
  app.add_option("--steps", steps);
  app.add_option("--data", data);
  AddJobFile(app, print);
  try {
    app.parse(absl::StrCat("--config ", *path));
    (void)JobFileText(app);
  } catch (const CLI::Error& error) {
    (void)error;
  }
  std::filesystem::remove(*path);
}

void TakeNotations(const std::string& text) {
  (void)ParseParallel(text);
  (void)MatchesPattern(text, "layer.0.weight");
  (void)SegmentOfPattern(text);
  (void)ParseBytes(text);
}

void Take(char kind, const std::string& text) {
  switch (kind) {
    case 'p':
      return TakePlan(text);
    case 'c':
      return (void)ParseClusterFile(text, "cluster.yaml");
    case 'm':
      return TakeProfile(text);
    case 'h':
      return TakeHistory(text);
    case 'd':
      return TakeData(text);
    case 'a':
      return TakeAdapters(text);
    case 'f':
      return TakePartitions(text);
    case 'j':
      return TakeJob(text);
    case 'n':
      return TakeNotations(text);
    default:
      (void)MapFromJson(text, {DType::kString, DType::kFloat32, kind == 's'});
  }
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weft::Take(static_cast<char>(data[0]),
             std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
