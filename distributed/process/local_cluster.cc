#include "distributed/process/local_cluster.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/grpc_client.h"
#include "distributed/job_token.h"
#include "distributed/process/job_folder.h"
#include "distributed/process/memory_kills.h"
#include "platform/file_system.h"
#include "platform/log.h"
#include "platform/openmp_wait.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// How long a worker may take to end when it is asked to.
constexpr absl::Duration kEndTimeout = absl::Seconds(2);
// How long the end of a process may come after that of its connections.
constexpr absl::Duration kExplainTimeout = absl::Milliseconds(500);

// Connects at once to all that have no client in `clients` yet; the errors of those that failed,
// joined. Those that answered stay connected: a worker ends with its coordinator. `waited` is for
// the message.
absl::Status ConnectToMissing(const RemoteClusterOptions& cluster, absl::Duration timeout,
                              absl::Duration waited,
                              std::vector<std::unique_ptr<WorkerClient>>& clients) {
  const absl::Time deadline = absl::Now() + timeout;
  const std::vector<std::string>& addresses = cluster.addresses;
  clients.resize(addresses.size());
  std::vector<absl::Status> errors(addresses.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (clients[i] != nullptr) continue;
    threads.emplace_back([&, i] {
      GrpcClientOptions options;
      options.address = addresses[i];
      options.rank = RankId(static_cast<int32_t>(i));
      options.insecure_network = cluster.insecure_network;
      options.token = cluster.token;
      options.keys = cluster.keys;
      options.connect_deadline = deadline;
      absl::StatusOr<std::unique_ptr<WorkerClient>> client = ConnectToWorker(options);
      if (client.ok()) {
        clients[i] = *std::move(client);
        Log(LogLevel::kInfo, clients[i]->name(), " answers");
      } else {
        errors[i] = client.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> texts;
  absl::StatusCode code = absl::StatusCode::kOk;
  for (const absl::Status& error : errors) {
    if (error.ok()) continue;
    code = error.code();
    texts.emplace_back(error.message());
  }
  if (texts.empty()) return absl::OkStatus();
  return absl::Status(
      code, absl::StrCat(texts.size(), " of ", addresses.size(), " workers cannot be used (waited ",
                         absl::FormatDuration(waited), "): ", absl::StrJoin(texts, "; ")));
}

std::vector<WorkerClient*> Pointers(const std::vector<std::unique_ptr<WorkerClient>>& clients) {
  std::vector<WorkerClient*> pointers;
  for (const auto& client : clients) pointers.push_back(client.get());
  return pointers;
}

// Takes these (in ascending order) out of `all`; what was there.
template <typename T>
std::vector<T> TakeOut(const std::vector<int>& places, std::vector<T>& all) {
  std::vector<T> taken;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    taken.push_back(std::move(all[static_cast<size_t>(*place)]));
    all.erase(all.begin() + *place);
  }
  return taken;
}

class RemoteCluster final : public WorkerCluster {
 public:
  RemoteCluster(std::vector<std::string> addresses,
                std::vector<std::unique_ptr<WorkerClient>> clients)
      : addresses_(std::move(addresses)), clients_(std::move(clients)) {}
  std::vector<WorkerClient*> clients() const override { return Pointers(clients_); }
  const std::vector<std::string>& addresses() const override { return addresses_; }
  absl::Status Explain(const absl::Status& error) override { return error; }
  void Lose(const std::vector<int>& clients) override {
    TakeOut(clients, addresses_);
    for (auto& client : TakeOut(clients, clients_)) lost_.push_back(std::move(client));
  }

 private:
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<WorkerClient>> clients_;
  std::vector<std::unique_ptr<WorkerClient>> lost_;
};

class LocalCluster final : public WorkerCluster {
 public:
  ~LocalCluster() override;
  absl::Status Start(ProcessLauncher& launcher, const LocalClusterOptions& options);

  std::vector<WorkerClient*> clients() const override { return Pointers(clients_); }
  const std::vector<std::string>& addresses() const override { return addresses_; }
  absl::Status Explain(const absl::Status& error) override;
  void Lose(const std::vector<int>& clients) override;

 private:
  absl::Status StartProcess(ProcessLauncher& launcher, const LocalClusterOptions& options, int i);
  absl::Status Connect(absl::Duration timeout);
  // "worker:1 (pid 4711)".
  std::string Name(size_t i) const {
    return absl::StrCat("worker:", i, " (pid ", processes_[i]->id(), ")");
  }
  // "worker:1 (pid 4711) was killed by signal 9 (Killed)" for the first that has ended.
  std::optional<std::string> FirstEnd();
  // "worker:1 (pid 4711) does not answer: ..." for the first that a signal has stopped.
  std::optional<std::string> FirstStop();

  std::string TokenFile() const { return absl::StrCat(folder_->path(), "/token"); }

  std::optional<JobFolder> folder_;
  int64_t memory_kills_ = 0;  // before the job
  std::string token_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<WorkerClient>> clients_;
  std::vector<std::unique_ptr<WorkerClient>> lost_;
};

void LocalCluster::Lose(const std::vector<int>& clients) {
  TakeOut(clients, addresses_);
  TakeOut(clients, processes_).clear();  // kills them, and waits
  for (auto& client : TakeOut(clients, clients_)) lost_.push_back(std::move(client));
}

absl::Status LocalCluster::Start(ProcessLauncher& launcher, const LocalClusterOptions& options) {
  if (!options.devices.empty() && options.devices.size() != static_cast<size_t>(options.workers)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.workers, " workers have ", options.devices.size(), " devices"));
  }
  if (options.workers < 1 || options.command.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot start ", options.workers, " workers; at least 1 is needed"));
  }
  PrepareForClusters();  // the environment is read for the workers
  memory_kills_ = MemoryKills(RealFileSystem());
  const std::string place = std::filesystem::temp_directory_path().string();
  for (const std::string& removed : RemoveEndedJobFolders(place)) {
    Log(LogLevel::kInfo, "removed ", removed, ", which a job that was killed had left");
  }
  WEFT_ASSIGN_OR_RETURN(JobFolder folder, JobFolder::Create(place));
  folder_.emplace(std::move(folder));
  WEFT_ASSIGN_OR_RETURN(token_, NewJobToken());
  WEFT_RETURN_IF_ERROR(WriteTokenFile(TokenFile(), token_));
  for (int i = 0; i < options.workers; ++i) {
    WEFT_RETURN_IF_ERROR(StartProcess(launcher, options, i));
  }
  return Connect(options.start_timeout);
}

absl::Status LocalCluster::StartProcess(ProcessLauncher& launcher,
                                        const LocalClusterOptions& options, int i) {
  addresses_.push_back(absl::StrCat("unix:", folder_->path(), "/", i));
  ProcessOptions process;
  process.arguments = options.command;
  for (const std::string& argument :
       {std::string("--listen"), addresses_.back(), std::string("--ends-with-parent"),
        absl::StrCat(CurrentProcessId()), std::string("--token-file"), TokenFile(),
        std::string("--allow-path"), std::string("/")}) {
    process.arguments.push_back(argument);
  }
  if (!options.devices.empty()) {
    process.arguments.push_back("--device");
    process.arguments.push_back(options.devices[static_cast<size_t>(i)]);
  }
  process.environment = OpenMpWait();
  process.standard_error = options.standard_error;
  process.own_process_group = true;  // Ctrl-C is the coordinator's to handle
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Process> started, launcher.Start(process));
  processes_.push_back(std::move(started));
  return absl::OkStatus();
}

absl::Status LocalCluster::Connect(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  std::vector<std::unique_ptr<WorkerClient>> clients;
  // In slices: a worker that ends at once is reported at once.
  while (true) {
    const absl::Duration slice = std::min(absl::Seconds(2), deadline - absl::Now());
    const absl::Status connected =
        ConnectToMissing({addresses_, false, token_}, slice, timeout, clients);
    if (connected.ok()) break;
    if (const std::optional<std::string> end = FirstEnd(); end.has_value()) {
      return absl::UnavailableError(absl::StrCat(*end,
                                                 " before it answered; its messages are "
                                                 "above"));
    }
    if (absl::Now() >= deadline) return connected;
  }
  clients_ = std::move(clients);
  return absl::OkStatus();
}

std::optional<std::string> LocalCluster::FirstEnd() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    const std::optional<ExitStatus> end = processes_[i]->Poll();
    if (!end.has_value()) continue;
    return absl::StrCat(Name(i), end->signal != 0 ? " was " : " ended with ", end->DebugString());
  }
  return std::nullopt;
}

std::optional<std::string> LocalCluster::FirstStop() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (!processes_[i]->IsStopped()) continue;
    return absl::StrCat(Name(i), " does not answer: a signal has stopped it (SIGSTOP?)");
  }
  return std::nullopt;
}

absl::Status LocalCluster::Explain(const absl::Status& error) {
  if (!absl::IsUnavailable(error) && !absl::IsAborted(error) && !absl::IsCancelled(error) &&
      !absl::IsDeadlineExceeded(error)) {
    return error;
  }
  if (IsOfStoppedCoordinator(error)) return error;
  const absl::Time deadline = absl::Now() + kExplainTimeout;
  std::optional<std::string> end = FirstEnd();
  if (!end.has_value()) end = FirstStop();
  while (!end.has_value() && absl::Now() < deadline) {
    processes_.front()->WaitUntil(absl::Now() + absl::Milliseconds(20));
    end = FirstEnd();
  }
  if (!end.has_value()) return error;
  const bool was_killed = absl::StrContains(*end, absl::StrCat("by signal ", SIGKILL));
  if (was_killed && MemoryKills(RealFileSystem()) > memory_kills_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        *end,
        ": since the job began, the system has ended a process for want of memory (oom_kill "
        "in /proc/vmstat); use a smaller --batch or fewer workers, or give --memory-per-worker "
        "to have a job that needs more refused; ",
        error.message()));
  }
  return absl::UnavailableError(absl::StrCat(*end, "; ", error.message()));
}

LocalCluster::~LocalCluster() {
  std::vector<bool> stopped;  // such a one hears nothing
  for (const auto& process : processes_) stopped.push_back(process->IsStopped());
  for (size_t i = 0; i < clients_.size(); ++i) {
    const bool runs = !processes_[i]->Poll().has_value() && !stopped[i];
    if (clients_[i] != nullptr && runs) ShutDownWorker(*clients_[i]);
  }
  const bool asked = !clients_.empty();
  clients_.clear();  // the leases break
  lost_.clear();
  const absl::Time deadline = absl::Now() + kEndTimeout;
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (asked && !stopped[i]) processes_[i]->WaitUntil(deadline);
  }
  processes_.clear();  // kills what is left, and waits; the folder goes after them
}

}  // namespace

void PrepareForClusters() { PrepareGrpc(); }

absl::StatusOr<std::unique_ptr<WorkerCluster>> StartLocalCluster(
    ProcessLauncher& launcher, const LocalClusterOptions& options) {
  auto cluster = std::make_unique<LocalCluster>();
  WEFT_RETURN_IF_ERROR(cluster->Start(launcher, options));
  return std::unique_ptr<WorkerCluster>(std::move(cluster));
}

absl::StatusOr<std::unique_ptr<WorkerCluster>> ConnectToCluster(
    const RemoteClusterOptions& options) {
  std::vector<std::unique_ptr<WorkerClient>> clients;
  WEFT_RETURN_IF_ERROR(
      ConnectToMissing(options, options.start_timeout, options.start_timeout, clients));
  return std::unique_ptr<WorkerCluster>(
      std::make_unique<RemoteCluster>(options.addresses, std::move(clients)));
}

}  // namespace weft
