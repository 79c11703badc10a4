#include "distributed/process/local_cluster.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "distributed/coordinator_epoch.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/control_service.h"
#include "distributed/grpc/grpc_client.h"
#include "distributed/job_token.h"
#include "distributed/process/arriving_workers.h"
#include "distributed/process/job_folder.h"
#include "distributed/process/memory_kills.h"
#include "platform/file_system.h"
#include "platform/log.h"
#include "platform/mutex.h"
#include "platform/openmp_wait.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// How long a worker may take to end when it is asked to.
constexpr absl::Duration kEndTimeout = absl::Seconds(2);
// How long the end of a process may come after that of its connections.
constexpr absl::Duration kExplainTimeout = absl::Milliseconds(500);
// How soon a worker is asked again that another coordinator attends.
constexpr absl::Duration kAskAgain = absl::Milliseconds(200);
// How long a worker that has let this coordinator go may take to say why.
constexpr absl::Duration kReasonTimeout = absl::Seconds(1);

GrpcClientOptions ClientOptionsOf(const RemoteClusterOptions& cluster, size_t worker) {
  GrpcClientOptions options;
  options.address = cluster.addresses[worker];
  options.rank = RankId(static_cast<int32_t>(worker));
  options.insecure_network = cluster.insecure_network;
  options.token = cluster.token;
  options.keys = cluster.keys;
  options.detection = cluster.detection;
  return options;
}

// Connects to a worker; again and again while another coordinator attends it, for the cluster's
// patience.
absl::StatusOr<std::unique_ptr<WorkerClient>> ConnectInTurn(const RemoteClusterOptions& cluster,
                                                            const GrpcClientOptions& options) {
  static_assert(kAttendedPatience > kLeasePatience);
  const absl::Time until = absl::Now() + cluster.attended_patience;
  absl::StatusOr<std::unique_ptr<WorkerClient>> client = ConnectToWorker(options);
  while (!client.ok() && IsAttendedByAnother(client.status()) && absl::Now() < until) {
    absl::SleepFor(kAskAgain);
    client = ConnectToWorker(options);
  }
  return client;
}

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
      GrpcClientOptions options = ClientOptionsOf(cluster, i);
      options.connect_deadline = deadline;
      absl::StatusOr<std::unique_ptr<WorkerClient>> client = ConnectInTurn(cluster, options);
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

// One of a cluster's workers.
struct ClusterWorker {
  int place = 0;  // its rank, as the job was planned first
  std::string address;
  std::unique_ptr<Process> process = nullptr;  // null: others started it
  std::unique_ptr<WorkerClient> client = nullptr;
};

// Workers that are in a job, by place, and those that are awaited.
class PlacedWorkers {
 public:
  std::vector<WorkerClient*> clients() const {
    std::vector<WorkerClient*> clients;
    for (const ClusterWorker& worker : workers_) clients.push_back(worker.client.get());
    return clients;
  }
  std::vector<std::string> addresses() const {
    std::vector<std::string> addresses;
    for (const ClusterWorker& worker : workers_) addresses.push_back(worker.address);
    return addresses;
  }
  const std::vector<ClusterWorker>& all() const { return workers_; }
  void Add(ClusterWorker worker) {
    const auto after =
        std::find_if(workers_.begin(), workers_.end(),
                     [&](const ClusterWorker& other) { return other.place > worker.place; });
    workers_.insert(after, std::move(worker));
  }
  // Takes out those whose clients these are, by place.
  std::vector<ClusterWorker> TakeOut(const std::vector<WorkerClient*>& clients) {
    std::vector<ClusterWorker> taken;
    for (WorkerClient* const client : clients) {
      const auto found =
          std::find_if(workers_.begin(), workers_.end(),
                       [&](const ClusterWorker& one) { return one.client.get() == client; });
      if (found == workers_.end()) continue;
      taken.push_back(std::move(*found));
      workers_.erase(found);
    }
    return taken;
  }
  const ClusterWorker* Find(int place) const {
    for (const ClusterWorker& worker : workers_) {
      if (worker.place == place) return &worker;
    }
    return nullptr;
  }
  void Clear() { workers_.clear(); }

 private:
  std::vector<ClusterWorker> workers_;
};

class RemoteCluster final : public WorkerCluster {
 public:
  RemoteCluster(const RemoteClusterOptions& options,
                std::vector<std::unique_ptr<WorkerClient>> clients)
      : options_(options) {
    for (size_t i = 0; i < clients.size(); ++i) {
      workers_.Add({static_cast<int>(i), options.addresses[i], nullptr, std::move(clients[i])});
    }
  }
  std::vector<WorkerClient*> clients() const override { return workers_.clients(); }
  std::vector<std::string> addresses() const override { return workers_.addresses(); }
  absl::Status Explain(const absl::Status& error) override {
    const std::vector<ClusterWorker>& all = workers_.all();
    const bool is_loss = absl::IsUnavailable(error) || absl::IsAborted(error);
    const bool are_lost = std::all_of(all.begin(), all.end(), [](const ClusterWorker& worker) {
      return worker.client->is_lost();
    });
    // Who was stopped may hear of the end of its calls before that of its leases.
    if (!is_loss || !(are_lost || IsOfStoppedCoordinator(error))) return error;
    const absl::Status deposed = FindSuccessor();
    return deposed.ok() ? error : deposed;
  }
  void Lose(const std::vector<WorkerClient*>& clients) override {
    for (ClusterWorker& worker : workers_.TakeOut(clients)) lost_.push_back(std::move(worker));
  }
  void Release(const std::vector<WorkerClient*>& clients) override {
    workers_.TakeOut(clients).clear();  // the leases end, and the workers with them
  }

  // One that comes back listens where it did before.
  void Want(int place) override {
    const ClusterWorker* const present = workers_.Find(place);
    if (present != nullptr && !present->client->is_leaving()) return;
    // Else it would still be attended.
    std::erase_if(lost_, [place](const ClusterWorker& one) { return one.place == place; });
    arriving_.Await(place, ClientOptionsOf(options_, static_cast<size_t>(place)));
  }
  bool is_expected() const override { return arriving_.is_awaiting(); }
  std::vector<Arrival> Take(absl::Time deadline) override {
    std::vector<Arrival> arrivals;
    for (ArrivingWorkers::Arrived& arrived : arriving_.Take(deadline)) {
      arrivals.push_back({arrived.place, arrived.client.get(), arrived.address});
      workers_.Add({arrived.place, arrived.address, nullptr, std::move(arrived.client)});
    }
    return arrivals;
  }

 private:
  // A DeposedError where a worker has accepted a later coordinator; OK where none says so.
  absl::Status FindSuccessor() const;

  const RemoteClusterOptions options_;
  PlacedWorkers workers_;
  std::vector<ClusterWorker> lost_;
  ArrivingWorkers arriving_;
};

absl::Status RemoteCluster::FindSuccessor() const {
  Mutex mutex;
  absl::Status found;
  const absl::Time deadline = absl::Now() + kReasonTimeout;
  std::vector<std::thread> threads;
  for (const ClusterWorker& worker : workers_.all()) {
    GrpcClientOptions options = ClientOptionsOf(options_, static_cast<size_t>(worker.place));
    options.epoch = worker.client->epoch();
    options.connect_deadline = deadline;
    threads.emplace_back([options, deadline, &mutex, &found] {
      absl::Status status = ConnectToWorker(options).status();
      // Another coordinator that has not joined it yet.
      while (IsAttendedByAnother(status) && absl::Now() < deadline) {
        absl::SleepFor(kAskAgain);
        status = ConnectToWorker(options).status();
      }
      MutexLock lock(mutex);
      if (IsDeposed(status)) found = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

class LocalCluster final : public WorkerCluster {
 public:
  LocalCluster(ProcessLauncher& launcher, const LocalClusterOptions& options)
      : launcher_(launcher), options_(options) {}
  ~LocalCluster() override;
  absl::Status Start();

  std::vector<WorkerClient*> clients() const override { return workers_.clients(); }
  std::vector<std::string> addresses() const override { return workers_.addresses(); }
  absl::Status Explain(const absl::Status& error) override;
  void Lose(const std::vector<WorkerClient*>& clients) override;
  void Release(const std::vector<WorkerClient*>& clients) override;
  void Want(int place) override;
  bool is_expected() const override { return !starting_.empty(); }
  std::vector<Arrival> Take(absl::Time deadline) override;

 private:
  // Starts a process for this place, on a socket of its own.
  absl::StatusOr<ClusterWorker> StartProcess(int place);
  absl::Status Connect(std::vector<ClusterWorker> workers);
  RemoteClusterOptions Reaching(std::vector<std::string> addresses) const {
    RemoteClusterOptions options;
    options.addresses = std::move(addresses);
    options.token = token_;
    options.detection = options_.detection;
    return options;
  }
  // "worker:1 (pid 4711) was killed by signal 9 (Killed)" for the first that has ended.
  static std::optional<std::string> FirstEnd(const std::vector<ClusterWorker>& workers);
  // "worker:1 (pid 4711) does not answer: ..." for the first that a signal has stopped.
  static std::optional<std::string> FirstStop(const std::vector<ClusterWorker>& workers);
  // Those that were started and have ended before they answered come no more.
  void GiveUpEnded();

  std::string TokenFile() const { return absl::StrCat(folder_->path(), "/token"); }

  ProcessLauncher& launcher_;
  const LocalClusterOptions options_;
  std::optional<JobFolder> folder_;
  int64_t memory_kills_ = 0;  // before the job
  std::string token_;
  int sockets_ = 0;  // that processes were told of
  PlacedWorkers workers_;
  std::vector<std::unique_ptr<WorkerClient>> lost_;
  std::vector<ClusterWorker> starting_;  // without clients
  std::map<int, int> starts_;            // by place: of processes after the first
  std::set<int> left_;                   // places whose workers have left on purpose
  ArrivingWorkers arriving_;
};

std::string NameOf(const ClusterWorker& worker) {
  return absl::StrCat("worker:", worker.place, " (pid ", worker.process->id(), ")");
}

void LocalCluster::Lose(const std::vector<WorkerClient*>& clients) {
  for (ClusterWorker& worker : workers_.TakeOut(clients)) {
    worker.process.reset();  // killed, and waited for
    lost_.push_back(std::move(worker.client));
  }
}

void LocalCluster::Release(const std::vector<WorkerClient*>& clients) {
  const absl::Time deadline = absl::Now() + kEndTimeout;
  for (ClusterWorker& worker : workers_.TakeOut(clients)) {
    left_.insert(worker.place);
    worker.client.reset();  // the lease ends, and the worker with it
    const std::optional<ExitStatus> end = worker.process->WaitUntil(deadline);
    Log(LogLevel::kInfo, NameOf(worker), " has left and ",
        end.has_value() ? absl::StrCat("ended with ", end->DebugString()) : "does not end");
  }
}

void LocalCluster::Want(int place) {
  // A process that ends again and again has a reason.
  constexpr int kMaxStarts = 3;
  const bool is_there = workers_.Find(place) != nullptr || left_.contains(place);
  if (is_there || arriving_.is_awaited(place) || starts_[place] >= kMaxStarts) return;
  ++starts_[place];
  absl::StatusOr<ClusterWorker> started = StartProcess(place);
  if (!started.ok()) {
    Log(LogLevel::kWarning, "no process can be started for place ", place, ": ",
        started.status().ToString());
    return;
  }
  GrpcClientOptions options = ClientOptionsOf(Reaching({started->address}), 0);
  options.rank = RankId(place);
  arriving_.Await(place, options);
  starting_.push_back(*std::move(started));
}

void LocalCluster::GiveUpEnded() {
  std::erase_if(starting_, [this](const ClusterWorker& worker) {
    const std::optional<ExitStatus> end = worker.process->Poll();
    if (!end.has_value()) return false;
    Log(LogLevel::kWarning, NameOf(worker), " ended with ", end->DebugString(),
        " before it answered");
    arriving_.GiveUp(worker.place);
    return true;
  });
}

std::vector<Arrival> LocalCluster::Take(absl::Time deadline) {
  std::vector<Arrival> arrivals;
  for (ArrivingWorkers::Arrived& arrived : arriving_.Take(deadline)) {
    const auto started =
        std::find_if(starting_.begin(), starting_.end(),
                     [&](const ClusterWorker& worker) { return worker.place == arrived.place; });
    started->client = std::move(arrived.client);
    arrivals.push_back({arrived.place, started->client.get(), arrived.address});
    workers_.Add(std::move(*started));
    starting_.erase(started);
  }
  GiveUpEnded();
  return arrivals;
}

absl::Status LocalCluster::Start() {
  if (!options_.devices.empty() &&
      options_.devices.size() != static_cast<size_t>(options_.workers)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.workers, " workers have ", options_.devices.size(), " devices"));
  }
  if (options_.workers < 1 || options_.command.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot start ", options_.workers, " workers; at least 1 is needed"));
  }
  PrepareForClusters();  // the environment is read for the workers
  memory_kills_ = MemoryKills(RealFileSystem());
  const std::string place = std::filesystem::temp_directory_path().string();
  for (const std::string& removed : RemoveEndedJobFolders(place)) {
    Log(LogLevel::kInfo, "removed ", removed, ", which a job that was killed had left");
  }
  WEFT_ASSIGN_OR_RETURN(JobFolder folder, JobFolder::Create(place));
  folder_.emplace(std::move(folder));
  token_ = options_.token;
  if (token_.empty()) {
    WEFT_ASSIGN_OR_RETURN(token_, NewJobToken());
  }
  WEFT_RETURN_IF_ERROR(WriteTokenFile(TokenFile(), token_));
  std::vector<ClusterWorker> workers;
  for (int i = 0; i < options_.workers; ++i) {
    WEFT_ASSIGN_OR_RETURN(ClusterWorker worker, StartProcess(i));
    workers.push_back(std::move(worker));
  }
  return Connect(std::move(workers));
}

absl::StatusOr<ClusterWorker> LocalCluster::StartProcess(int place) {
  ClusterWorker worker;
  worker.place = place;
  worker.address = absl::StrCat("unix:", folder_->path(), "/", sockets_++);
  ProcessOptions process;
  process.arguments = options_.command;
  for (const std::string& argument :
       {std::string("--listen"), worker.address, std::string("--ends-with-parent"),
        absl::StrCat(CurrentProcessId()), std::string("--token-file"), TokenFile(),
        std::string("--allow-path"), std::string("/")}) {
    process.arguments.push_back(argument);
  }
  if (!options_.devices.empty()) {
    process.arguments.push_back("--device");
    process.arguments.push_back(options_.devices[static_cast<size_t>(place)]);
  }
  process.environment = OpenMpWait();
  process.standard_error = options_.standard_error;
  process.own_process_group = true;  // Ctrl-C is the coordinator's to handle
  WEFT_ASSIGN_OR_RETURN(worker.process, launcher_.Start(process));
  return worker;
}

absl::Status LocalCluster::Connect(std::vector<ClusterWorker> workers) {
  const absl::Duration timeout = options_.start_timeout;
  const absl::Time deadline = absl::Now() + timeout;
  std::vector<std::string> addresses;
  for (const ClusterWorker& worker : workers) addresses.push_back(worker.address);
  std::vector<std::unique_ptr<WorkerClient>> clients;
  // In slices: a worker that ends at once is reported at once.
  while (true) {
    const absl::Duration slice = std::min(absl::Seconds(2), deadline - absl::Now());
    const absl::Status connected = ConnectToMissing(Reaching(addresses), slice, timeout, clients);
    if (connected.ok()) break;
    if (const std::optional<std::string> end = FirstEnd(workers); end.has_value()) {
      return absl::UnavailableError(absl::StrCat(*end,
                                                 " before it answered; its messages are "
                                                 "above"));
    }
    if (absl::Now() >= deadline) return connected;
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i].client = std::move(clients[i]);
    workers_.Add(std::move(workers[i]));
  }
  return absl::OkStatus();
}

std::optional<std::string> LocalCluster::FirstEnd(const std::vector<ClusterWorker>& workers) {
  for (const ClusterWorker& worker : workers) {
    const std::optional<ExitStatus> end = worker.process->Poll();
    if (!end.has_value()) continue;
    return absl::StrCat(NameOf(worker), end->signal != 0 ? " was " : " ended with ",
                        end->DebugString());
  }
  return std::nullopt;
}

std::optional<std::string> LocalCluster::FirstStop(const std::vector<ClusterWorker>& workers) {
  for (const ClusterWorker& worker : workers) {
    if (!worker.process->IsStopped()) continue;
    return absl::StrCat(NameOf(worker), " does not answer: a signal has stopped it (SIGSTOP?)");
  }
  return std::nullopt;
}

absl::Status LocalCluster::Explain(const absl::Status& error) {
  if (!absl::IsUnavailable(error) && !absl::IsAborted(error) && !absl::IsCancelled(error) &&
      !absl::IsDeadlineExceeded(error)) {
    return error;
  }
  const std::vector<ClusterWorker>& workers = workers_.all();
  if (IsOfStoppedCoordinator(error) || workers.empty()) return error;
  const absl::Time deadline = absl::Now() + kExplainTimeout;
  std::optional<std::string> end = FirstEnd(workers);
  if (!end.has_value()) end = FirstStop(workers);
  while (!end.has_value() && absl::Now() < deadline) {
    workers.front().process->WaitUntil(absl::Now() + absl::Milliseconds(20));
    end = FirstEnd(workers);
  }
  if (!end.has_value()) return error;
  const bool was_killed = absl::StrContains(*end, absl::StrCat("by signal ", SIGKILL));
  if (was_killed && MemoryKills(RealFileSystem()) > memory_kills_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        *end,
        ": since the job began, the system has ended a process for want of memory (oom_kill in "
        "/proc/vmstat), so use a smaller --batch or fewer workers, or give --memory-per-worker to "
        "have a job that needs more refused; ",
        error.message()));
  }
  return absl::UnavailableError(absl::StrCat(*end, "; ", error.message()));
}

LocalCluster::~LocalCluster() {
  for (const ClusterWorker& worker : starting_) arriving_.GiveUp(worker.place);
  starting_.clear();  // killed
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<bool> asked;
  for (ClusterWorker& worker : workers_.TakeOut(workers_.clients())) {
    // Such a one hears nothing.
    const bool hears = !worker.process->IsStopped();
    if (hears && !worker.process->Poll().has_value()) ShutDownWorker(*worker.client);
    asked.push_back(hears);
    processes.push_back(std::move(worker.process));
  }  // the leases break
  lost_.clear();
  const absl::Time deadline = absl::Now() + kEndTimeout;
  for (size_t i = 0; i < processes.size(); ++i) {
    if (asked[i]) processes[i]->WaitUntil(deadline);
  }
  processes.clear();  // kills what is left, and waits; the folder goes after them
}

}  // namespace

void PrepareForClusters() { PrepareGrpc(); }

absl::StatusOr<std::unique_ptr<WorkerCluster>> StartLocalCluster(
    ProcessLauncher& launcher, const LocalClusterOptions& options) {
  auto cluster = std::make_unique<LocalCluster>(launcher, options);
  WEFT_RETURN_IF_ERROR(cluster->Start());
  return std::unique_ptr<WorkerCluster>(std::move(cluster));
}

absl::StatusOr<std::unique_ptr<WorkerCluster>> ConnectToCluster(
    const RemoteClusterOptions& options) {
  std::vector<std::unique_ptr<WorkerClient>> clients;
  WEFT_RETURN_IF_ERROR(
      ConnectToMissing(options, options.start_timeout, options.start_timeout, clients));
  return std::unique_ptr<WorkerCluster>(
      std::make_unique<RemoteCluster>(options, std::move(clients)));
}

}  // namespace weft
