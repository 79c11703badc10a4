#include "tools/chaos/chaos_job.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "yaml-cpp/yaml.h"

namespace weft {
namespace {

// Flags that chaos gives itself, or that would write into the person's files.
const std::set<std::string, std::less<>>& TakenFlags() {
  static const auto* const flags = new std::set<std::string, std::less<>>{
      "local",         "device",       "checkpoint", "checkpoint-every", "resume", "out",
      "ema-out",       "adapters-out", "metrics",    "tensorboard",      "best",   "save-gradients",
      "save-programs", "run-history",  "output",     "log-level"};
  return *flags;
}

// The values of a job file that are one text, by key.
absl::StatusOr<std::map<std::string, std::string>> Scalars(const std::string& text) {
  std::map<std::string, std::string> values;
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return absl::InternalError("the flags of the job are no map");
    for (const auto& entry : root) {
      values[entry.first.Scalar()] = entry.second.IsScalar() ? entry.second.Scalar() : "";
    }
  } catch (const YAML::Exception& error) {
    return absl::InternalError(absl::StrCat("the flags of the job cannot be read: ", error.msg));
  }
  return values;
}

// The lines of the job file whose keys are not taken. A key begins its line; what goes on is
// indented.
std::string WithoutTakenFlags(const std::string& text) {
  std::string kept;
  bool keeps = true;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.empty()) continue;
    if (line[0] != ' ') {
      const absl::string_view key = line.substr(0, line.find(':'));
      keeps = !TakenFlags().contains(std::string(key));
    }
    if (keeps) absl::StrAppend(&kept, line, "\n");
  }
  return kept;
}

}  // namespace

absl::StatusOr<ChaosJob> ParseChaosJob(const std::string& printed) {
  WEFT_ASSIGN_OR_RETURN(const auto values, Scalars(printed));
  const auto value = [&values](const char* key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string() : found->second;
  };
  if (values.contains("cluster")) {
    return UsageError(
        "chaos kills workers, so it takes none that others have started: give the job --local N "
        "instead of --cluster");
  }
  if (values.contains("sweep")) {
    return UsageError("chaos runs one job at a time; leave --sweep out");
  }
  ChaosJob job;
  job.text = WithoutTakenFlags(printed);
  job.local = value("local");
  if (!job.local.empty() && !absl::SimpleAtoi(job.local, &job.workers)) job.workers = 0;
  if (!absl::SimpleAtoi(value("steps"), &job.steps)) job.steps = 0;
  job.is_strict = value("strict") == "true";
  if (value("detect") == "fast") job.silence = 1;
  job.checkpoint_every = value("checkpoint-every");
  job.device = value("device");
  if (job.workers == 0) job.why_no_proxies = "the job has no worker processes; give it --local N";
  for (const char* const flag : {"device", "op_library", "keys", "pin"}) {
    if (values.contains(flag)) {
      job.why_no_proxies =
          absl::StrCat("the job has --", flag, ", which is for --local alone here");
    }
  }
  return job;
}

absl::StatusOr<ChaosJob> ReadChaosJob(ProcessLauncher& launcher, const std::string& program,
                                      const std::vector<std::string>& words,
                                      const std::string& log) {
  constexpr absl::Duration kPrintTimeout = absl::Seconds(60);
  ProcessOptions options;
  options.arguments = {program};
  options.arguments.insert(options.arguments.end(), words.begin(), words.end());
  options.arguments.emplace_back("--print-config");
  options.standard_output = {.kind = ProcessOutput::Kind::kPipe, .path = ""};
  options.standard_error = {.kind = ProcessOutput::Kind::kFile, .path = log};
  options.own_process_group = true;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Process> process, launcher.Start(options));
  const absl::Time deadline = absl::Now() + kPrintTimeout;
  std::string printed;
  while (true) {
    const absl::StatusOr<std::string> line = process->ReadLine(deadline);
    if (absl::IsOutOfRange(line.status())) break;
    WEFT_RETURN_IF_ERROR(line.status());
    absl::StrAppend(&printed, *line, "\n");
  }
  const std::optional<ExitStatus> ended = process->WaitUntil(deadline);
  if (!ended.has_value()) {
    return absl::DeadlineExceededError("the flags of the job were not read within 60 s");
  }
  if (ended->success()) return ParseChaosJob(printed);
  constexpr int64_t kLongestError = 1 << 20;
  const auto text = RealFileSystem().ReadFileUpTo(log, kLongestError);
  absl::string_view error = text.ok() ? absl::string_view(*text) : absl::string_view();
  error = absl::StripSuffix(error.substr(0, error.find('\n')), "\n");
  absl::ConsumePrefix(&error, "error: ");
  return WithExitCode(
      absl::InvalidArgumentError(
          absl::StrCat("the job: ", error.empty() ? ended->DebugString() : std::string(error))),
      ended->signal == 0 ? static_cast<ExitCode>(ended->code) : ExitCode::kInternal);
}

std::string ShellText(const std::vector<std::string>& words) {
  constexpr absl::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  std::string text;
  for (const std::string& word : words) {
    const bool is_plain = !word.empty() && absl::string_view(word).find_first_not_of(kPlain) ==
                                               absl::string_view::npos;
    absl::StrAppend(
        &text, text.empty() ? "" : " ",
        is_plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'"));
  }
  return text;
}

}  // namespace weft
