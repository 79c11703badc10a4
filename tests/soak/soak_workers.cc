#include "tests/soak/soak_workers.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "distributed/control_calls.h"
#include "distributed/snapshot_copies.h"
#include "distributed/testing/fault_injecting_transport.h"
#include "distributed/transport.h"
#include "tensor/cpu_device.h"

namespace weft::testing {
namespace {

// That a slow rank sends late, one after the other.
constexpr int64_t kSlowMessages = 40;

}  // namespace

// What befalls one worker, and how a coordinator reaches it.
class SoakWorkers::Rank final : public WorkerClient {
 public:
  Rank(SoakWorkers& all, int number) : all_(all), number_(number) {
    for (size_t i = 0; i < all.schedule_.faults.size(); ++i) {
      if (all.schedule_.faults[i].rank == number) faults_.push_back(i);
    }
  }

  void Own(std::unique_ptr<Worker> worker) { worker_ = std::move(worker); }

  // ---- Of its transport.

  // Before a message leaves; waits as long as a pause takes. False: it does not leave.
  // `of_copies`: it carries a copy of a state.
  bool BeforeSend(bool of_copies) {
    double pause = 0;
    bool silent = false;
    {
      MutexLock lock(all_.mutex_);
      const int64_t message = of_copies ? state().copy_sends++ : state().sends++;
      for (const size_t i : faults_) {
        const SoakFault& fault = all_.schedule_.faults[i];
        if (fault.row->of_copies != of_copies) continue;
        if (state().silent || !StrikesAt(fault, message)) continue;
        if (fault.row->strike == Strike::kSilence) {
          FallSilent(number_, fault.seconds);
          if (fault.other_rank >= 0) FallSilent(fault.other_rank, fault.seconds);
        } else if (fault.row->strike != Strike::kMessage) {
          pause = fault.seconds;
        }
        all_.struck_.insert(i);
      }
      silent = state().silent;
      const absl::Time end = all_.clock_.Now() + absl::Seconds(pause);
      while (pause > 0 && !state().dead && !all_.ending_ && all_.clock_.Now() < end) {
        all_.clock_.WaitUntil(all_.changed_, all_.mutex_, end);
      }
    }
    return !silent;
  }

  // The faults of its messages, of steps or with copies, from the next one on, counted from there.
  std::vector<TransportFault> MessageFaults(bool of_copies) {
    MutexLock lock(all_.mutex_);
    const int64_t sends = of_copies ? state().copy_sends : state().sends;
    std::vector<TransportFault> faults;
    for (const size_t i : faults_) {
      const SoakFault& fault = all_.schedule_.faults[i];
      if (fault.row->of_copies != of_copies) continue;
      if (fault.row->strike != Strike::kMessage || fault.moment < sends) continue;
      faults.push_back({fault.row->message, fault.moment - sends, fault.later_sends});
    }
    return faults;
  }

  // ---- Of whoever notices.

  void Die() ABSL_LOCKS_EXCLUDED(all_.mutex_) {
    {
      MutexLock lock(all_.mutex_);
      state().silent = state().dead = true;
      all_.changed_.NotifyAll();
    }
    worker_->Abort(absl::UnavailableError("the process was killed"));
  }

  void Leave() { leaves_ = true; }

  // ---- WorkerClient

  bool is_leaving() const override { return leaves_.load(); }
  std::string name() const override { return worker_->name(); }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    if (membership.continues_job_id != 0 || membership.recovers_job_id != 0) BeAsked();
    return Call<WorkerInfo>([&] { return worker_->Join(membership); });
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    return Call<MemoryRequirement>([&] { return worker_->AddProgram(program, partition, data); });
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    return CallForStatus([&] { return worker_->WriteVariable(name, local); });
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override {
    return Call<Tensor>([&] { return worker_->ReadVariable(name); });
  }
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override {
    const std::function<void(const StepReport&)> told = [&](const StepReport& done) {
      ++all_.activity_;
      if (!is_silent()) report(done);
    };
    return CallForStatus([&] { return worker_->RunSteps(ranges, report ? told : nullptr); });
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override {
    if (std::holds_alternative<StepProgressRequest>(request) ||
        std::holds_alternative<FinishStepRequest>(request) ||
        std::holds_alternative<HoldStateRequest>(request) ||
        std::holds_alternative<HeldStateRequest>(request) ||
        std::holds_alternative<ReadHeldRequest>(request)) {
      BeAsked();
    }
    return Call<ControlReply>([&] { return worker_->Answer(request); });
  }
  void Abort(const absl::Status& reason) override {
    if (!is_silent()) worker_->Abort(reason);
  }

 private:
  // Of what comes with messages.
  static bool StrikesAt(const SoakFault& fault, int64_t message) {
    switch (fault.row->strike) {
      case Strike::kSilence:
      case Strike::kPause:
      case Strike::kMessage:
        return fault.moment == message;
      case Strike::kSlow:
        return fault.moment <= message && message < fault.moment + kSlowMessages;
      default:
        return false;
    }
  }
  State& state() ABSL_EXCLUSIVE_LOCKS_REQUIRED(all_.mutex_) {
    return all_.states_[static_cast<size_t>(number_)];
  }
  void FallSilent(int rank, double seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(all_.mutex_) {
    State& fallen = all_.states_[static_cast<size_t>(rank)];
    if (fallen.silent) return;
    fallen.silent = true;
    fallen.noticed_at = all_.clock_.Now() + absl::Seconds(seconds);
    all_.changed_.NotifyAll();
  }
  // A call that comes after a loss, or as another leaves.
  void BeAsked() {
    {
      MutexLock lock(all_.mutex_);
      const int64_t call = state().asked++;
      bool dies = false;
      for (const size_t i : faults_) {
        const SoakFault& fault = all_.schedule_.faults[i];
        if (fault.row->strike != Strike::kAsked || fault.moment != call || state().silent) continue;
        all_.struck_.insert(i);
        dies = true;
      }
      if (!dies) return;
    }
    Die();
  }
  bool is_silent() {
    MutexLock lock(all_.mutex_);
    return state().silent;
  }
  // Whether the rank is lost; waits until that is noticed.
  bool IsLost() {
    MutexLock lock(all_.mutex_);
    while (state().silent && !state().dead) all_.changed_.Wait(all_.mutex_);
    return state().dead;
  }
  absl::Status Lost() const { return absl::UnavailableError(absl::StrCat(name(), " was lost")); }
  template <typename Result>
  absl::StatusOr<Result> Call(const std::function<absl::StatusOr<Result>()>& call) {
    ++all_.activity_;
    if (IsLost()) return Lost();
    absl::StatusOr<Result> result = call();
    ++all_.activity_;
    if (IsLost()) return Lost();
    return result;
  }
  absl::Status CallForStatus(const std::function<absl::Status()>& call) {
    ++all_.activity_;
    if (IsLost()) return Lost();
    absl::Status status = call();
    ++all_.activity_;
    if (IsLost()) return Lost();
    return status;
  }

  SoakWorkers& all_;
  const int number_;
  std::vector<size_t> faults_;  // numbers in the schedule
  std::atomic<bool> leaves_{false};
  std::unique_ptr<Worker> worker_;
};

// Where a job gets workers in the places of lost ones.
class SoakWorkers::Source final : public WorkerSource {
 public:
  explicit Source(SoakWorkers& all) : all_(all) {}
  void Want(int place) override { all_.Want(place); }
  bool is_expected() const override { return all_.is_expected(); }
  std::vector<Arrival> Take(absl::Time deadline) override { return all_.Take(deadline); }

 private:
  SoakWorkers& all_;
};

// What a rank sends, as long as it is not silent.
class SoakWorkers::RankTransport final : public Transport {
 public:
  RankTransport(Rank& owner, std::atomic<int64_t>& activity, std::unique_ptr<Transport> inner)
      : owner_(owner),
        activity_(activity),
        inner_(std::move(inner)),
        steps_(*inner_, owner.MessageFaults(/*of_copies=*/false)),
        copies_(*inner_, owner.MessageFaults(/*of_copies=*/true)) {}
  RankId rank() const override { return inner_->rank(); }
  void Send(RankId peer, const MessageHeader& header, const void* data,
            TransferObserver& observer) override {
    ++activity_;
    const bool of_copies = header.stream == kSnapshotStream || header.stream == kTakenStream;
    if (!owner_.BeforeSend(of_copies)) return observer.Done(absl::OkStatus());
    (of_copies ? copies_ : steps_).Send(peer, header, data, observer);
  }
  void Receive(RankId peer, const MessageHeader& header, void* data,
               TransferObserver& observer) override {
    ++activity_;
    inner_->Receive(peer, header, data, observer);
  }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }
  int64_t bytes_sent() const override { return inner_->bytes_sent(); }
  int64_t unexpected_bytes_limit() const override { return inner_->unexpected_bytes_limit(); }

 private:
  Rank& owner_;
  std::atomic<int64_t>& activity_;
  const std::unique_ptr<Transport> inner_;
  FaultInjectingTransport steps_;
  FaultInjectingTransport copies_;
};

SoakWorkers::SoakWorkers(const FaultSchedule& schedule, const InputSourceFactory& open_input,
                         const std::string& version, FileSystem& checkpoint_files, FakeClock& clock)
    : schedule_(schedule),
      open_input_(open_input),
      version_(version),
      checkpoint_files_(checkpoint_files),
      clock_(clock),
      source_(std::make_unique<Source>(*this)) {
  {
    MutexLock lock(mutex_);
    for (int i = 0; i < schedule.mesh.size(); ++i) AddRank();
  }
  noticing_ = std::thread([this] { Notice(); });
}

SoakWorkers::~SoakWorkers() {
  EndAll();
  noticing_.join();
  std::vector<std::unique_ptr<Rank>> ranks;
  {
    MutexLock lock(mutex_);
    ranks.swap(ranks_);
  }
  ranks
      .clear();  // before the hubs that their transports use, and without the lock, which they take
}

SoakWorkers::Rank& SoakWorkers::AddRank() {
  const int number = static_cast<int>(ranks_.size());
  DeviceInfo info;
  info.index = number;
  devices_.push_back(NewCpuDevice(info));
  states_.emplace_back();
  ranks_.push_back(std::make_unique<Rank>(*this, number));
  Rank& rank = *ranks_.back();
  WorkerEnvironment environment;
  environment.name = absl::StrCat("worker:", number, " (in this process)");
  environment.device = devices_.back().get();
  environment.clock = &clock_;
  environment.open_input = open_input_;
  environment.version = version_;
  environment.checkpoint_files = &checkpoint_files_;
  environment.open_transport = [this, &rank](const JobMembership& job) {
    return OpenTransport(rank, job);
  };
  rank.Own(NewWorker(std::move(environment)));
  return rank;
}

absl::StatusOr<std::unique_ptr<Transport>> SoakWorkers::OpenTransport(Rank& rank,
                                                                      const JobMembership& job) {
  std::unique_ptr<Transport> inner;
  {
    MutexLock lock(mutex_);
    if (hubs_.empty() || job.job_id != job_id_) {
      hubs_.push_back(std::make_unique<InProcessHub>(schedule_.mesh.size()));
      job_id_ = job.job_id;
    }
    inner = hubs_.back()->NewTransport(job.rank);
  }
  return std::make_unique<RankTransport>(rank, activity_, std::move(inner));
}

WorkerSource& SoakWorkers::source() const { return *source_; }

void SoakWorkers::Leave(int rank) {
  MutexLock lock(mutex_);
  ranks_[static_cast<size_t>(rank)]->Leave();
}

void SoakWorkers::Want(int place) {
  MutexLock lock(mutex_);
  for (const SoakFault& fault : schedule_.faults) {
    const bool is_hit = fault.rank == place || fault.other_rank == place;
    if (!fault.row->returns || !is_hit || !returned_.insert(place).second) continue;
    awaited_.push_back(
        {place, 1 + static_cast<int>(fault.moment % 5), clock_.Now() + absl::Seconds(1)});
    return;
  }
}

bool SoakWorkers::is_expected() const {
  MutexLock lock(mutex_);
  return !awaited_.empty() && !ending_;
}

std::vector<Arrival> SoakWorkers::Take(absl::Time deadline) {
  std::vector<Arrival> arrivals;
  MutexLock lock(mutex_);
  for (Awaited& awaited : awaited_) --awaited.looks;
  while (!ending_) {
    const absl::Time now = clock_.Now();
    absl::Time next = deadline;
    for (size_t i = 0; i < awaited_.size();) {
      if (awaited_[i].looks > 0 && awaited_[i].at > now) {
        next = std::min(next, awaited_[i].at);
        ++i;
        continue;
      }
      arrivals.push_back({awaited_[i].place, &AddRank(), ""});
      awaited_.erase(awaited_.begin() + static_cast<std::ptrdiff_t>(i));
      ++activity_;
    }
    if (!arrivals.empty() || awaited_.empty() || now >= deadline) break;
    clock_.WaitUntil(changed_, mutex_, next);
  }
  return arrivals;
}

void SoakWorkers::Notice() {
  bool ends = false;
  while (!ends) {
    std::vector<Rank*> dying;
    {
      MutexLock lock(mutex_);
      ends = ending_;
      absl::Time next = absl::InfiniteFuture();
      for (size_t i = 0; i < ranks_.size(); ++i) {
        const bool dies = ends || (states_[i].silent && !states_[i].dead);
        const absl::Time at = ends ? absl::InfinitePast() : states_[i].noticed_at;
        if (dies && at <= clock_.Now()) dying.push_back(ranks_[i].get());
        if (dies) next = std::min(next, at);
      }
      if (dying.empty()) clock_.WaitUntil(changed_, mutex_, next);
    }
    for (Rank* const rank : dying) rank->Die();
  }
}

std::vector<WorkerClient*> SoakWorkers::clients() const {
  MutexLock lock(mutex_);
  std::vector<WorkerClient*> clients;
  for (int i = 0; i < schedule_.mesh.size(); ++i) {
    clients.push_back(ranks_[static_cast<size_t>(i)].get());
  }
  return clients;
}

bool SoakWorkers::has_struck(size_t fault) const {
  MutexLock lock(mutex_);
  return struck_.contains(fault);
}

void SoakWorkers::EndAll() {
  MutexLock lock(mutex_);
  ending_ = true;
  changed_.NotifyAll();
}

}  // namespace weft::testing
