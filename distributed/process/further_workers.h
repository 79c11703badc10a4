// FurtherWorkers: workers that a job's plan does not count on: spares of the cluster file, and
// those that ask to be taken in.
#ifndef WEFT_DISTRIBUTED_PROCESS_FURTHER_WORKERS_H_
#define WEFT_DISTRIBUTED_PROCESS_FURTHER_WORKERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/grpc/grpc_client.h"
#include "distributed/grpc/joining/join_desk.h"
#include "distributed/keys/key_ring.h"
#include "distributed/loss_detection.h"
#include "distributed/process/arriving_workers.h"
#include "distributed/worker_client.h"
#include "distributed/worker_source.h"

namespace weft {

struct SpareWorker {
  std::string address;
  std::string device;  // "cuda:1"; "" = not known
};

struct FurtherWorkersOptions {
  // The rest of the job's workers: these are numbered behind them.
  std::vector<std::string> members;  // addresses
  std::vector<SpareWorker> spares;
  // Where workers ask to be taken in (JoinDeskOptions); "" = nowhere.
  std::string listen;
  int max_waiting = 8;
  // The members are of this machine alone, whoever has keys.
  bool is_local = false;
  bool insecure_network = false;
  std::string token;
  std::shared_ptr<KeyRing> keys = {};
  std::string version;
  LossDetection detection = {};
  absl::Duration start_timeout = absl::Seconds(60);
};

// Connects to them, and hands them to a job as arrivals for any place. A spare that is lost is
// awaited at its address; one that has joined asks again by itself. One thread calls it; what waits
// for them has threads of its own. Destroyed after the coordinator. Those that have joined end with
// it, spares do not.
class FurtherWorkers final : public WorkerSource {
 public:
  // Waits for the spares. Unavailable naming those that did not answer in time; errors of
  // JoinDesk::Open.
  static absl::StatusOr<std::unique_ptr<FurtherWorkers>> Start(
      const FurtherWorkersOptions& options);
  ~FurtherWorkers() override;

  // Where it listens; "" = nowhere.
  std::string address() const { return desk_ == nullptr ? "" : desk_->address(); }
  int spares() const { return static_cast<int>(options_.spares.size()); }
  // Those that are there now, whether they are in the job or not.
  std::vector<WorkerClient*> clients() const;

  // Places are nobody's business here.
  void Want(int) override {}
  bool is_expected() const override { return false; }
  // Waits for nobody.
  std::vector<Arrival> Take(absl::Time deadline) override;
  void TakenIn(const WorkerClient& client) override;
  void Refuse(WorkerClient& client, const absl::Status& why) override;
  // These take no part any more. Others than its own are left alone.
  void Lose(const std::vector<WorkerClient*>& clients);
  // The same of those that have left on purpose; nobody uses their clients any more.
  void Release(const std::vector<WorkerClient*>& clients);

 private:
  // One that is there.
  struct Further {
    int number = 0;
    uint64_t incarnation = 0;  // of its offer; 0: a spare
    std::unique_ptr<WorkerClient> client = nullptr;
  };

  explicit FurtherWorkers(const FurtherWorkersOptions& options) : options_(options) {}
  absl::Status OpenDesk();
  absl::Status AwaitSpares();
  bool IsSpare(int number) const;
  const SpareWorker& SpareOf(int number) const;
  void AwaitSpare(int number);
  GrpcClientOptions Reaching(int number, const std::string& address) const;
  // Why a worker at this address could not reach the members, or not be reached by them.
  absl::Status CheckReachable(const std::string& address) const;
  void ConnectToOffers();
  // Keeps one that answers, and what is told of it.
  Arrival Keep(ArrivingWorkers::Arrived arrived);
  // Takes it out of those that are there; without a client where it is none.
  Further TakeOut(const WorkerClient* client);

  const FurtherWorkersOptions options_;
  std::unique_ptr<JoinDesk> desk_;
  int next_number_ = 0;
  std::map<int, JoinOffer> offers_;  // that are connected to, by number
  std::vector<Further> there_;
  std::vector<Arrival> untold_;  // spares, from the start
  // Of those that are lost or refused, until Take is called again.
  std::vector<std::unique_ptr<WorkerClient>> gone_;
  ArrivingWorkers arriving_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_FURTHER_WORKERS_H_
