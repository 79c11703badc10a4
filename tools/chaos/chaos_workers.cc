#include "tools/chaos/chaos_workers.h"

#include <signal.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/job_token.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/polling.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr absl::Duration kListenTimeout = absl::Seconds(20);
constexpr absl::Duration kWorkerEndTimeout = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<ChaosWorkers>> ChaosWorkers::Start(ProcessLauncher& launcher,
                                                                  const std::string& program,
                                                                  const std::string& folder,
                                                                  int count) {
  WEFT_RETURN_IF_ERROR(RealFileSystem().CreateDirectories(folder));
  std::unique_ptr<ChaosWorkers> workers(new ChaosWorkers(launcher, program, folder));
  WEFT_ASSIGN_OR_RETURN(const std::string token, NewJobToken());
  WEFT_RETURN_IF_ERROR(WriteTokenFile(folder + "/token", token));
  std::string cluster = "hosts:\n  - name: here\n    workers:\n";
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&cluster, "      - {address: \"unix:", folder, "/", i, "\"}\n");
    workers->workers_.emplace_back();
    WEFT_ASSIGN_OR_RETURN(workers->workers_.back().proxy,
                          SocketProxy::Create(absl::StrCat(folder, "/", i), workers->PathOf(i)));
    WEFT_RETURN_IF_ERROR(workers->StartProcess(i));
  }
  WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(folder + "/cluster.yaml", cluster));
  WEFT_RETURN_IF_ERROR(workers->AwaitSockets());
  return workers;
}

std::string ChaosWorkers::PathOf(int worker) const {
  return absl::StrCat(folder_, "/", worker, ".worker");
}

std::vector<std::string> ChaosWorkers::flags() const {
  return {"--cluster", folder_ + "/cluster.yaml", "--token-file", folder_ + "/token"};
}

absl::Status ChaosWorkers::StartProcess(int worker) {
  // One that was killed leaves it behind.
  RealFileSystem().RemoveFile(PathOf(worker)).IgnoreError();
  ProcessOptions options;
  // What they say to each other goes through the proxies, which have faults.
  options.arguments = {program_,       "worker", "--listen",     "unix:" + PathOf(worker),
                       "--allow-path", "/",      "--token-file", folder_ + "/token",
                       "--transport",  "sockets"};
  options.standard_output = {.kind = ProcessOutput::Kind::kDiscard, .path = ""};
  options.standard_error = {.kind = ProcessOutput::Kind::kFile,
                            .path = absl::StrCat(folder_, "/", worker, ".log")};
  options.own_process_group = true;
  ChaosWorker& entry = workers_[static_cast<size_t>(worker)];
  WEFT_ASSIGN_OR_RETURN(entry.process, launcher_.Start(options));
  entry.ended_at = absl::InfiniteFuture();
  return absl::OkStatus();
}

absl::Status ChaosWorkers::AwaitSockets() const {
  const absl::Time deadline = RealClock().Now() + kListenTimeout;
  for (int i = 0; i < count(); ++i) {
    const bool listens = PollUntil(
        [&] { return RealFileSystem().Exists(PathOf(i)) || process(i).Poll().has_value(); },
        RealClock(), deadline);
    const std::optional<ExitStatus> ended = process(i).Poll();
    if (listens && !ended.has_value()) continue;
    return absl::UnavailableError(
        absl::StrCat("worker ", i, " of chaos does not listen: ",
                     ended.has_value() ? ended->DebugString() : "it waited 20 s"));
  }
  return absl::OkStatus();
}

std::vector<int> ChaosWorkers::living() const {
  std::vector<int> numbers;
  for (int i = 0; i < count(); ++i) {
    if (!process(i).Poll().has_value()) numbers.push_back(i);
  }
  return numbers;
}

std::vector<int64_t> ChaosWorkers::ids() const {
  std::vector<int64_t> ids;
  for (int i = 0; i < count(); ++i) ids.push_back(process(i).id());
  return ids;
}

absl::Status ChaosWorkers::Revive(absl::Duration away) {
  for (int i = 0; i < count(); ++i) {
    ChaosWorker& worker = workers_[static_cast<size_t>(i)];
    const std::optional<ExitStatus> ended = worker.process->Poll();
    if (!ended.has_value() || ended->success()) continue;
    const absl::Time now = RealClock().Now();
    if (worker.ended_at == absl::InfiniteFuture()) worker.ended_at = now;
    if (now >= worker.ended_at + away) WEFT_RETURN_IF_ERROR(StartProcess(i));
  }
  return absl::OkStatus();
}

absl::Status ChaosWorkers::ReviveAll() {
  for (int i = 0; i < count(); ++i) {
    proxy(i).SetCut(false);
    if (process(i).Poll().has_value()) WEFT_RETURN_IF_ERROR(StartProcess(i));
  }
  return AwaitSockets();
}

std::vector<std::string> ChaosWorkers::End() {
  std::vector<std::string> late;
  for (int i = 0; i < count(); ++i) {
    proxy(i).SetCut(false);
    process(i).Signal(SIGCONT).IgnoreError();
    process(i).Signal(SIGTERM).IgnoreError();
  }
  const absl::Time deadline = RealClock().Now() + kWorkerEndTimeout;
  for (int i = 0; i < count(); ++i) {
    if (process(i).WaitUntil(deadline).has_value()) continue;
    late.push_back(absl::StrCat("worker ", i, " (pid ", process(i).id(),
                                ") did not end within 5 s of SIGTERM"));
    process(i).Signal(SIGKILL).IgnoreError();
  }
  return late;
}

}  // namespace weft
