#include "distributed/process/arriving_workers.h"

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "platform/log.h"

namespace weft {
namespace {

// Of one try, and between two.
constexpr absl::Duration kTry = absl::Milliseconds(500);
constexpr absl::Duration kBetween = absl::Milliseconds(200);

}  // namespace

ArrivingWorkers::~ArrivingWorkers() {
  for (auto& [place, one] : tries_) one->is_given_up.store(true);
  {
    MutexLock lock(mutex_);
    changed_.NotifyAll();
  }
  for (auto& [place, one] : tries_) one->thread.join();
}

void ArrivingWorkers::Await(int place, const GrpcClientOptions& options, absl::Time until) {
  std::unique_ptr<Try>& one = tries_[place];
  if (one != nullptr) return;
  one = std::make_unique<Try>();
  one->thread = std::thread([this, place, options, until, &given_up = one->is_given_up] {
    Connect(place, options, until, given_up);
  });
}

void ArrivingWorkers::GiveUp(int place) {
  const auto one = tries_.find(place);
  if (one == tries_.end()) return;
  one->second->is_given_up.store(true);
  {
    MutexLock lock(mutex_);
    changed_.NotifyAll();
  }
  one->second->thread.join();
  tries_.erase(one);
  MutexLock lock(mutex_);
  std::erase_if(arrived_, [place](const Arrived& arrived) { return arrived.place == place; });
}

void ArrivingWorkers::Connect(int place, GrpcClientOptions options, absl::Time until,
                              const std::atomic<bool>& is_given_up) {
  while (!is_given_up.load()) {
    options.connect_deadline = absl::Now() + kTry;
    absl::StatusOr<std::unique_ptr<WorkerClient>> client = ConnectToWorker(options);
    if (client.ok()) {
      MutexLock lock(mutex_);
      arrived_.push_back({place, options.address, *std::move(client)});
      changed_.NotifyAll();
      return;
    }
    Log(LogLevel::kDebug, "place ", place, " is awaited: ", client.status().ToString());
    MutexLock lock(mutex_);
    // Tokens and certificates do not get better.
    const bool is_final =
        until != absl::InfiniteFuture() &&
        (absl::IsUnauthenticated(client.status()) || absl::IsPermissionDenied(client.status()));
    if (is_final || absl::Now() >= until) {
      arrived_.push_back({place, options.address, nullptr, client.status()});
      changed_.NotifyAll();
      return;
    }
    const absl::Time next = absl::Now() + kBetween;
    while (!is_given_up.load() && changed_.WaitUntil(mutex_, next)) {
    }
  }
}

std::vector<ArrivingWorkers::Arrived> ArrivingWorkers::Take(absl::Time deadline) {
  std::vector<Arrived> taken;
  {
    MutexLock lock(mutex_);
    while (arrived_.empty() && absl::Now() < deadline && changed_.WaitUntil(mutex_, deadline)) {
    }
    taken = std::exchange(arrived_, {});
  }
  for (const Arrived& one : taken) {
    const auto ended = tries_.find(one.place);
    ended->second->thread.join();
    tries_.erase(ended);
  }
  return taken;
}

}  // namespace weft
