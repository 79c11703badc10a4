// CostModel: seconds of nodes, messages and collectives on the workers of a cluster.
//
//   seconds of a node = its measurement, if the profile has one, else
//                       what those of its kind say (placement/cost/kind_index.h), if there are,
//                       else node overhead + max(FLOPs / rate, bytes / bandwidth)   (the roofline
//                       model: Williams, Waterman and Patterson, 2009), rates by family and size
#ifndef WEFT_PLACEMENT_COST_COST_MODEL_H_
#define WEFT_PLACEMENT_COST_COST_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/op_schema.h"
#include "graph/plan.h"
#include "graph/schedule/all_reduce_choice.h"
#include "graph/schedule/collective_schedule.h"
#include "placement/cost/cluster_profile.h"
#include "placement/cost/kind_index.h"

namespace weft {

// How messages and collectives go between workers.
enum class MessageWay : uint8_t {
  kDirect,  // between devices with memory of their own, by NCCL
  kHost,    // between the memories of their hosts: devices copy there and back
};

// What of a job decides about ways.
struct DeviceWays {
  // Collectives go through hosts, as those of strict plans do: their sums have an order.
  bool host_collectives = false;
  // By worker: its card. Workers of one card reach each other through their host. Empty: each has
  // one of its own. Else one for each worker.
  std::vector<int> cards = {};
};

// From one worker to another.
struct LinkCost {
  double latency_seconds = 0;            // of an empty message
  double bytes_per_second = 0;           // in addition
  double send_seconds = 0;               // busy in Send, per message
  double receive_seconds = 0;            // busy in Receive, per message that has come
  double contention = 0;                 // LinkProfile::contention
  double exchange_bytes_per_second = 0;  // as bytes_per_second, while both directions are busy
  double MessageSeconds(double bytes) const { return latency_seconds + bytes / bytes_per_second; }
};

// How far earlier predictions were off: measured / predicted. Made from the history
// (placement/cost/run_history.h).
struct CostCorrections {
  double step = 1;                      // of any plan
  std::map<std::string, double> plans;  // by PlanSignature: those that were run
  int runs = 0;                         // that it rests on
};

// Mesh, schedule, micro-batches, threads and what else decides a plan's speed, in a line: equal for
// plans that differ in nothing a step's time depends on but the graph.
std::string PlanSignature(const Plan& plan);

// What a node that runs on the host of a device has copied there and back.
struct HostCopies {
  int64_t bytes = 0;
  int copies = 0;  // one for each operand
};
HostCopies HostCopiesOf(const NodeView& node);

// Immutable and thread-safe.
class CostModel {
 public:
  // InvalidArgument when the profile lacks a worker or has a rate that is not positive.
  static absl::StatusOr<CostModel> Create(ClusterProfile profile, CostCorrections corrections = {});
  // The same costs under other corrections; shares what it is made of.
  CostModel With(CostCorrections corrections) const;
  // The same costs where nodes of these operators, or of these types of theirs (Plan::host_ops),
  // run on the host of a worker whose device has memory of its own. What "*" stands for is not
  // known, and not priced.
  CostModel WithHostOps(const std::vector<std::string>& host_ops) const;
  // The same costs where messages between devices go so; without it, each has a card of its own.
  CostModel WithWays(DeviceWays ways) const;
  // Without measurements: ProfileOfSpec.
  static absl::StatusOr<CostModel> OfSpec(const ClusterSpec& cluster);

  // A node with local shapes on `threads` threads of the worker, which holds the activations of
  // `in_flight` micro-batches at once (of measurements the one that is nearest to it counts, by
  // their ratio). 0 for nodes that run no kernel: aliases, transfers and collectives. Below a
  // microsecond a call.
  double NodeSeconds(const NodeView& node, int worker, int threads, int in_flight = 1) const;
  // Of the numbers of micro-batches in flight with which any op was measured the nearest one; 1
  // without measurements. NodeSeconds says the same for both of an op that was measured with it.
  int MeasuredInFlight(int in_flight) const;
  // Whether NodeSeconds takes the node for one that runs on the worker's host.
  bool RunsOnHost(const NodeView& node, int worker) const;
  // Such a node: its operands over the link to the host, each by a copy, and its work on `threads`
  // threads of a common processor. Seconds = copies x latency + bytes / rate + work.
  double HostSeconds(const NodeView& node, int worker, int threads) const;
  // Work of which only the amount is known; without the overhead of a node.
  double WorkSeconds(const Cost& cost, DType dtype, int worker, int threads) const;
  // The same where the family is known and does not follow from the amounts.
  double WorkSeconds(const Cost& cost, OpFamily family, DType dtype, int worker, int threads) const;
  // Whether NodeSeconds knows this very op from a measurement.
  bool IsMeasured(const NodeView& node, int worker, int threads) const;

  // kDirect where both have memory of their own and cards of their own.
  MessageWay WayBetween(int from_worker, int to_worker) const;
  // The same of a collective among all of them.
  MessageWay WayOfGroup(std::span<const int> workers) const;
  // A message by this way. Through hosts, in seconds: the copies of the devices that have memory of
  // their own, one after the other, host_copy_seconds + bytes / host_bytes_per_second each, and
  // gRPC between the hosts. Of that nothing is measured where the profile's link is that between
  // devices: within a host it takes what the published link "loopback" says, between hosts the
  // profile's link, at most as fast as a stream of "ethernet-100g". A link that was measured
  // through hosts (LinkProfile::through_host) has all in it.
  LinkCost Link(int from_worker, int to_worker, MessageWay way) const;
  LinkCost Link(int from_worker, int to_worker) const {
    return Link(from_worker, to_worker, WayBetween(from_worker, to_worker));
  }
  // A collective whose members are these workers, all at the same time: simulates the members'
  // schedules over the links. Each message takes its link's time; workers of a host share its
  // rails; a reduction takes memory bandwidth. Through hosts a common processor reduces, and
  // devices copy their buffers there before, and back after.
  double CollectiveSeconds(std::span<const CollectiveSchedule> schedules, int64_t element_bytes,
                           std::span<const int> workers, MessageWay way) const;
  double CollectiveSeconds(std::span<const CollectiveSchedule> schedules, int64_t element_bytes,
                           std::span<const int> workers) const {
    return CollectiveSeconds(schedules, element_bytes, workers, WayOfGroup(workers));
  }
  // The same for an all-reduce by the algorithm that the partitioner would choose; large groups by
  // closed formulas instead of simulating.
  double AllReduceSeconds(const AllReduceTask& task, std::span<const int> workers,
                          MessageWay way) const;
  double AllReduceSeconds(const AllReduceTask& task, std::span<const int> workers) const {
    return AllReduceSeconds(task, workers, WayOfGroup(workers));
  }
  // All-gather and reduce-scatter around the ring of `bytes` in all.
  double RingSeconds(double bytes, std::span<const int> workers, MessageWay way) const;
  double RingSeconds(double bytes, std::span<const int> workers) const {
    return RingSeconds(bytes, workers, WayOfGroup(workers));
  }
  double AllToAllSeconds(double bytes, std::span<const int> workers) const;

  double node_seconds(int worker) const { return profile_->device(worker).node_seconds; }
  // Until a sleeping thread runs, and per step besides its nodes.
  double wake_seconds(int worker) const { return profile_->device(worker).wake_seconds; }
  double step_seconds(int worker) const { return profile_->device(worker).step_seconds; }
  // Filling the inputs of a step with samples of so many bytes.
  double InputSeconds(double bytes, int worker) const {
    const double rate = profile_->device(worker).input_bytes_per_second;
    return rate > 0 ? bytes / rate : 0;
  }
  int64_t MemoryBytes(int worker) const { return profile_->device(worker).memory_bytes; }
  int num_workers() const { return profile_->num_workers(); }
  int host(int worker) const { return profile_->host_of[worker]; }
  // By what a simulated step of the plan is multiplied: what the history says of this plan, else of
  // all plans of the model.
  double StepFactor(const Plan& plan) const;
  // Whether a calibration has measured all devices; else predictions rest on published specs.
  bool is_calibrated() const;
  const CostCorrections& corrections() const { return corrections_; }
  const ClusterProfile& profile() const { return *profile_; }

 private:
  CostModel() = default;
  int CardOf(int worker) const;  // DeviceWays::cards
  // Without the copies of devices.
  LinkCost HostLink(int from_worker, int to_worker) const;
  // Of messages in a collective: its members copy whole buffers, not each message.
  std::function<LinkCost(int from, int to)> LinksOf(MessageWay way) const;
  // What the slowest of these devices takes to copy so many bytes to its host and back; 0 where a
  // link was measured with that.
  double StagingSeconds(double bytes, std::span<const int> workers) const;
  bool HasOwnMemory(int worker) const { return profile_->device(worker).host_bytes_per_second > 0; }
  std::shared_ptr<const ClusterProfile> profile_;  // copies of a model share it
  CostCorrections corrections_;
  struct Measurement {
    int in_flight = 1;
    double seconds = 0;
  };
  struct OfDevice {
    // By MixThreads of key and threads; of each, by in_flight.
    absl::flat_hash_map<uint64_t, std::vector<Measurement>> ops;
    KindIndex kinds;
  };
  struct Measurements {
    std::vector<OfDevice> devices;
    std::vector<int> in_flight;
  };
  std::shared_ptr<const Measurements> measured_;
  std::vector<std::string> host_ops_;
  DeviceWays ways_;
  bool has_devices_ = false;  // some worker's has memory of its own
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_COST_MODEL_H_
