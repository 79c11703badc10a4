#include "distributed/process/further_workers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "distributed/grpc/address.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// How long a worker that has offered itself may take to answer at its address.
constexpr absl::Duration kReachTimeout = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<FurtherWorkers>> FurtherWorkers::Start(
    const FurtherWorkersOptions& options) {
  std::unique_ptr<FurtherWorkers> workers(new FurtherWorkers(options));
  workers->next_number_ = static_cast<int>(options.members.size() + options.spares.size());
  WEFT_RETURN_IF_ERROR(workers->AwaitSpares());
  // Last: who is told to join finds a job.
  WEFT_RETURN_IF_ERROR(workers->OpenDesk());
  return workers;
}

absl::Status FurtherWorkers::OpenDesk() {
  if (options_.listen.empty()) return absl::OkStatus();
  if (options_.is_local && !IsLocalAddress(options_.listen)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--listen ", options_.listen,
                     ": the job's workers are on sockets of this machine, so none of another one "
                     "can join them; listen on a loopback address or a unix socket, or have the "
                     "workers in a cluster file"));
  }
  JoinDeskOptions desk;
  desk.address = options_.listen;
  desk.insecure_network = options_.insecure_network;
  desk.token = options_.token;
  desk.keys = options_.keys;
  desk.version = options_.version;
  desk.max_waiting = options_.max_waiting;
  desk.check_address = [this](const std::string& address) { return CheckReachable(address); };
  auto opened = JoinDesk::Open(desk);
  if (!opened.ok()) return Annotate(opened.status(), "--listen");
  desk_ = *std::move(opened);
  return absl::OkStatus();
}

// What it reads does not change: it is called by threads of the desk.
absl::Status FurtherWorkers::CheckReachable(const std::string& address) const {
  const bool is_local = IsLocalAddress(address);
  for (const std::string& member : options_.members) {
    if (IsLocalAddress(member) == is_local) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        is_local ? "workers of this job on other machines cannot reach "
                 : "the workers of this job listen on their own machine alone, and cannot be "
                   "reached from ",
        address,
        is_local ? "; give --listen an address of the network, and keys"
                 : "; start this worker there"));
  }
  return absl::OkStatus();
}

GrpcClientOptions FurtherWorkers::Reaching(int number, const std::string& address) const {
  GrpcClientOptions options;
  options.address = address;
  options.rank = RankId(number);
  options.insecure_network = options_.insecure_network;
  options.token = options_.token;
  options.keys = options_.keys;
  options.detection = options_.detection;
  return options;
}

bool FurtherWorkers::IsSpare(int number) const {
  const int first = static_cast<int>(options_.members.size());
  return number >= first && number < first + spares();
}

const SpareWorker& FurtherWorkers::SpareOf(int number) const {
  return options_.spares[static_cast<size_t>(number) - options_.members.size()];
}

std::vector<WorkerClient*> FurtherWorkers::clients() const {
  std::vector<WorkerClient*> clients;
  for (const Further& one : there_) clients.push_back(one.client.get());
  return clients;
}

void FurtherWorkers::AwaitSpare(int number) {
  arriving_.Await(number, Reaching(number, SpareOf(number).address));
}

absl::Status FurtherWorkers::AwaitSpares() {
  const int first = static_cast<int>(options_.members.size());
  const absl::Time deadline = absl::Now() + options_.start_timeout;
  for (int spare = 0; spare < spares(); ++spare) {
    arriving_.Await(first + spare,
                    Reaching(first + spare, options_.spares[static_cast<size_t>(spare)].address),
                    deadline);
  }
  std::vector<std::string> missing;
  absl::StatusCode code = absl::StatusCode::kOk;
  while (arriving_.is_awaiting()) {
    for (ArrivingWorkers::Arrived& arrived : arriving_.Take(absl::InfiniteFuture())) {
      if (arrived.client == nullptr) {
        missing.emplace_back(arrived.error.message());
        code = arrived.error.code();
        continue;
      }
      Log(LogLevel::kInfo, arrived.client->name(), ", a spare, answers");
      untold_.push_back(Keep(std::move(arrived)));
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::Status(
      code, absl::StrCat(missing.size(), " of ", spares(), " spares cannot be used (waited ",
                         absl::FormatDuration(options_.start_timeout),
                         "): ", absl::StrJoin(missing, "; ")));
}

void FurtherWorkers::ConnectToOffers() {
  if (desk_ == nullptr) return;
  for (const JoinOffer& offer : desk_->TakeNew()) {
    const int number = next_number_++;
    arriving_.Await(number, Reaching(number, offer.address), absl::Now() + kReachTimeout);
    offers_[number] = offer;
  }
}

Arrival FurtherWorkers::Keep(ArrivingWorkers::Arrived arrived) {
  Arrival arrival;
  arrival.place = kAnyPlace;
  arrival.client = arrived.client.get();
  arrival.address = arrived.address;
  Further one = {arrived.place};
  if (IsSpare(arrived.place)) {
    arrival.device = SpareOf(arrived.place).device;
  } else {
    const JoinOffer& offer = offers_.at(arrived.place);
    one.incarnation = offer.incarnation;
    arrival.device = offer.device;
    arrival.may_add = true;
  }
  one.client = std::move(arrived.client);
  there_.push_back(std::move(one));
  return arrival;
}

std::vector<Arrival> FurtherWorkers::Take(absl::Time) {
  gone_.clear();  // their leases end; who is refused hears why when it asks again
  std::vector<Arrival> arrivals = std::exchange(untold_, {});
  ConnectToOffers();
  for (ArrivingWorkers::Arrived& arrived : arriving_.Take(absl::InfinitePast())) {
    const int number = arrived.place;
    if (arrived.client != nullptr) {
      arrivals.push_back(Keep(std::move(arrived)));
    } else if (const auto offer = offers_.find(number); offer != offers_.end()) {
      desk_->Refuse(offer->second.incarnation,
                    Annotate(arrived.error, "the coordinator cannot use this worker"));
    }
    offers_.erase(number);
  }
  return arrivals;
}

FurtherWorkers::Further FurtherWorkers::TakeOut(const WorkerClient* client) {
  const auto found = std::find_if(there_.begin(), there_.end(), [client](const Further& one) {
    return one.client.get() == client;
  });
  if (found == there_.end()) return {};
  Further one = std::move(*found);
  there_.erase(found);
  return one;
}

void FurtherWorkers::TakenIn(const WorkerClient& client) {
  for (const Further& one : there_) {
    if (one.client.get() == &client && one.incarnation != 0) desk_->Forget(one.incarnation);
  }
}

void FurtherWorkers::Refuse(WorkerClient& client, const absl::Status& why) {
  Further one = TakeOut(&client);
  if (one.client == nullptr) return;
  if (one.incarnation != 0) desk_->Refuse(one.incarnation, why);
  gone_.push_back(std::move(one.client));
}

void FurtherWorkers::Lose(const std::vector<WorkerClient*>& clients) {
  for (const WorkerClient* const client : clients) {
    Further one = TakeOut(client);
    if (one.client == nullptr) continue;
    if (one.incarnation != 0) desk_->Forget(one.incarnation);
    gone_.push_back(std::move(one.client));
    if (IsSpare(one.number)) AwaitSpare(one.number);
  }
}

void FurtherWorkers::Release(const std::vector<WorkerClient*>& clients) {
  for (const WorkerClient* const client : clients) {
    const Further one = TakeOut(client);  // its lease ends, and the worker with it
    if (one.client != nullptr && one.incarnation != 0) desk_->Forget(one.incarnation);
  }
}

FurtherWorkers::~FurtherWorkers() {
  desk_.reset();
  for (const Further& one : there_) {
    if (one.incarnation != 0 && !one.client->is_lost()) ShutDownWorker(*one.client);
  }
}

}  // namespace weft
