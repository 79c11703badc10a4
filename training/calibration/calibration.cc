#include "training/calibration/calibration.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/cost/cost_model.h"
#include "placement/cost/published_specs.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/simulator.h"
#include "platform/status_macros.h"
#include "tensor/timing/device_copies.h"
#include "training/calibration/contention_probe.h"
#include "training/calibration/device_probe.h"
#include "training/calibration/link_probe.h"
#include "training/calibration/median.h"
#include "training/calibration/model_probe.h"
#include "training/calibration/wake_probe.h"

namespace weft {
namespace {

// Machines are faster now and slower then: jobs are measured in turns, so that what is compared was
// measured over the same time.
constexpr int kTurns = 3;
// Where steps take long, no further turn begins after so many times what all were given.
constexpr double kTurnPatience = 3;
// Variables change while nodes are measured; so little that they stay finite.
constexpr double kLearningRate = 1e-6;

// How many times as long ops take on `device` as on `other`: the median of those that both ran.
double SlownessAgainst(const DeviceProfile& device, const DeviceProfile& other) {
  std::vector<double> ratios;
  for (const auto& [op, measured] : device.ops) {
    const auto theirs = other.ops.find(op);
    if (theirs == other.ops.end() || !(theirs->second.seconds > 0)) continue;
    ratios.push_back(measured.seconds / theirs->second.seconds);
  }
  return ratios.empty() ? 1 : Median(std::move(ratios));
}

void ShareOps(std::vector<DeviceProfile>& devices) {
  const std::vector<DeviceProfile> measured = devices;
  for (size_t d = 0; d < devices.size(); ++d) {
    for (size_t o = 0; o < measured.size(); ++o) {
      if (o == d) continue;
      const double slowness = SlownessAgainst(measured[d], measured[o]);
      for (const auto& [op, theirs] : measured[o].ops) {
        devices[d].ops.try_emplace(
            op, OpMeasurement{theirs.seconds * slowness, theirs.text, theirs.work});
      }
    }
  }
}

// Both directions count alike: their seconds per byte and per copy are averaged.
void TakeCopies(const DeviceCopies& copies, DeviceProfile& device) {
  device.host_bytes_per_second = device.host_copy_seconds = device.copy_bytes_per_second = 0;
  if (copies == DeviceCopies()) return;
  device.host_bytes_per_second =
      2 / (1 / copies.from_host.bytes_per_second + 1 / copies.to_host.bytes_per_second);
  device.host_copy_seconds = (copies.from_host.seconds + copies.to_host.seconds) / 2;
  device.copy_bytes_per_second = 2 * copies.on_device.bytes_per_second;  // read and written
}

// What the cluster file says, else what the device may allocate and CUDA's context has taken of it;
// of a device in the host's memory, what the worker may have.
void TakeMemory(const WorkerSpec& spec, const WorkerInfo& info, DeviceProfile& device) {
  if (spec.memory_bytes > 0) return;
  if (info.device.memory_bytes == 0) {
    if (device.memory_bytes == 0) device.memory_bytes = info.memory_limit.bytes;
    return;
  }
  device.memory_bytes = info.device.memory_bytes;
  if (spec.device == DeviceKind::kCuda) device.memory_bytes += kContextBytes;
}

class Calibration {
 public:
  Calibration(ProbeSession& session, const ClusterSpec& cluster, const CalibrationOptions& options)
      : session_(session), cluster_(cluster), options_(options) {}

  absl::StatusOr<ClusterProfile> Run() {
    WEFT_ASSIGN_OR_RETURN(profile_, ProfileOfSpec(cluster_));
    WEFT_RETURN_IF_ERROR(MeasureDevices());
    WEFT_RETURN_IF_ERROR(MeasureLinks());
    WEFT_RETURN_IF_ERROR(MeasureJobs());
    WEFT_RETURN_IF_ERROR(FinishJobs());
    return std::move(profile_);
  }

 private:
  Clock& clock() const { return options_.clock != nullptr ? *options_.clock : RealClock(); }

  void Say(const std::string& text) const {
    if (options_.progress != nullptr) options_.progress(text);
  }

  absl::Status MeasureDevices() {
    Say(absl::StrCat(cluster_.workers.size(), " devices"));
    // Before any program takes memory of them.
    WEFT_RETURN_IF_ERROR(session_.Begin({}, "", {}));
    WEFT_ASSIGN_OR_RETURN(const std::vector<DeviceCopies> copies, session_.MeasureCopies());
    std::vector<ProbedWorker> workers;
    const double wake = ProbeWakeSeconds(clock());
    for (size_t rank = 0; rank < cluster_.workers.size(); ++rank) {
      const WorkerInfo& info = session_.workers()[rank];
      ProbedWorker& worker = workers.emplace_back();
      worker.start = profile_.device(static_cast<int>(rank));
      worker.start.name = cluster_.workers[rank].name;
      worker.start.wake_seconds = wake;
      worker.start.card = info.device.text;
      worker.start.driver = info.device.driver;
      worker.threads = std::max(1, cluster_.workers[rank].threads);
      worker.is_card = !(copies[rank] == DeviceCopies());
      worker.card_bytes = info.device.memory_bytes;
      TakeCopies(copies[rank], worker.start);
      TakeMemory(cluster_.workers[rank], info, worker.start);
    }
    WEFT_ASSIGN_OR_RETURN(profile_.devices,
                          ProbeDevices(session_, workers, options_.device_seconds));
    for (int worker = 0; worker < session_.size(); ++worker) profile_.device_of[worker] = worker;
    return absl::OkStatus();
  }

  absl::Status MeasureLinks() {
    std::map<int, std::vector<int>> workers_on;  // by host
    for (int worker = 0; worker < session_.size(); ++worker) {
      workers_on[profile_.host_of[worker]].push_back(worker);
    }
    for (const auto& [from, from_workers] : workers_on) {
      for (const auto& [to, to_workers] : workers_on) {
        if (from == to && from_workers.size() < 2) continue;
        Say(from == to ? absl::StrCat("links within host ", from)
                       : absl::StrCat("the link from host ", from, " to ", to));
        const int receiver = from == to ? to_workers[1] : to_workers[0];
        WEFT_ASSIGN_OR_RETURN(LinkProfile link,
                              ProbeLink(session_, from_workers[0], receiver,
                                        profile_.device(receiver), options_.link_seconds));
        link.through_host =
            !session_.uses_nccl() && (HasOwnMemory(from_workers[0]) || HasOwnMemory(receiver));
        WEFT_ASSIGN_OR_RETURN(
            link.contention,
            ProbeContention(session_, from_workers[0], receiver, profile_.device(from_workers[0]),
                            link.exchange_bytes_per_second, options_.link_seconds));
        link.rails = profile_.link(from_workers[0], receiver).rails;
        profile_.links[{from, to}] = std::move(link);
      }
    }
    return absl::OkStatus();
  }

  bool HasOwnMemory(int worker) const { return profile_.device(worker).host_bytes_per_second > 0; }

  absl::Status MeasureJobs() {
    const double given = options_.job_seconds * static_cast<double>(options_.jobs.size());
    const int64_t begin = clock().MonotonicNanos();
    const auto seconds = [&] {
      return 1e-9 * static_cast<double>(clock().MonotonicNanos() - begin);
    };
    while (turns_ < kTurns && (turns_ == 0 || seconds() < kTurnPatience * given)) {
      for (size_t job = 0; job < options_.jobs.size(); ++job) {
        if (turns_ == 0) SayJob(*options_.jobs[job]);
        WEFT_RETURN_IF_ERROR(MeasureJob(job));
      }
      ++turns_;
    }
    return absl::OkStatus();
  }

  void SayJob(const PreparedJob& job) const {
    Say(absl::StrCat("the nodes of ", job.plan.mesh.ToString(), ", ", job.plan.micro_batches,
                     " micro-batches, ", job.plan.schedule));
  }

  absl::Status MeasureJob(size_t index) {
    const PreparedJob& job = *options_.jobs[index];
    WEFT_ASSIGN_OR_RETURN(ModelProbe probe,
                          ProbeModel(session_, job, kLearningRate, options_.job_seconds / kTurns,
                                     ProbeSession::kRounds / kTurns));
    for (size_t rank = 0; rank < probe.ranks.size(); ++rank) {
      const int worker = job.plan.workers[rank];
      DeviceProfile& device = profile_.devices[worker];
      for (const auto& [op, measured] : probe.ranks[rank].ops) {
        Sum& sum = ops_[{worker, op}];
        sum.seconds += measured.seconds;
        sum.count += 1;
        device.ops[op] = {sum.seconds / sum.count, measured.text, measured.work};
      }
      input_[worker].seconds += probe.ranks[rank].input_seconds;
      input_[worker].count += probe.ranks[rank].input_bytes;
    }
    if (index == measured_jobs_.size()) {
      measured_jobs_.push_back({&job.plan.workers, std::move(probe)});
      return absl::OkStatus();
    }
    for (size_t rank = 0; rank < probe.ranks.size(); ++rank) {
      measured_jobs_[index].probe.ranks[rank].step_seconds += probe.ranks[rank].step_seconds;
    }
    return absl::OkStatus();
  }

  absl::Status FinishJobs() {
    for (const auto& [worker, input] : input_) {
      if (input.seconds > 0) {
        profile_.devices[worker].input_bytes_per_second = input.count / input.seconds;
      }
    }
    ShareOps(profile_.devices);
    return measured_jobs_.empty() ? absl::OkStatus() : MeasureOverhead();
  }

  // What a step takes besides all that a simulation of it has: by worker, of all jobs.
  absl::Status MeasureOverhead() {
    for (DeviceProfile& device : profile_.devices) device.step_seconds = 0;
    WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostModel::Create(profile_));
    std::map<int, std::vector<double>> overheads;
    for (const MeasuredJob& job : measured_jobs_) {
      WEFT_ASSIGN_OR_RETURN(const StepModel model,
                            ModelOfPartitions(job.probe.partitions, *job.workers, costs));
      WEFT_ASSIGN_OR_RETURN(const Simulation simulation, SimulateStep(model, {}));
      for (size_t rank = 0; rank < job.probe.ranks.size(); ++rank) {
        overheads[(*job.workers)[rank]].push_back(job.probe.ranks[rank].step_seconds / turns_ -
                                                  simulation.ranks[rank].compute);
      }
    }
    for (auto& [worker, seconds] : overheads) {
      profile_.devices[worker].step_seconds = std::max(0.0, Median(std::move(seconds)));
    }
    return absl::OkStatus();
  }

  struct Sum {
    double seconds = 0;
    double count = 0;
  };

  ProbeSession& session_;
  const ClusterSpec& cluster_;
  const CalibrationOptions& options_;
  ClusterProfile profile_;
  int turns_ = 0;                                  // of all jobs that were measured
  std::map<std::pair<int, MeasuredOp>, Sum> ops_;  // by worker
  struct MeasuredJob {
    const std::vector<int>* workers = nullptr;  // by rank
    ModelProbe probe;                           // of the first turn; step_seconds summed over all
  };
  std::vector<MeasuredJob> measured_jobs_;
  std::map<int, Sum> input_;  // by worker; counts bytes
};

}  // namespace

absl::StatusOr<ClusterProfile> Calibrate(ProbeSession& session, const ClusterSpec& cluster,
                                         const CalibrationOptions& options) {
  return Calibration(session, cluster, options).Run();
}

std::vector<std::string> KeepOps(const ClusterProfile& earlier, ClusterProfile& profile) {
  std::vector<std::string> dropped;
  if (earlier.cluster_digest != profile.cluster_digest) return dropped;
  std::map<std::string, const DeviceProfile*> by_name;
  for (const DeviceProfile& device : earlier.devices) by_name[device.name] = &device;
  for (DeviceProfile& device : profile.devices) {
    const auto before = by_name.find(device.name);
    if (before == by_name.end()) continue;
    if (before->second->card != device.card) {
      dropped.push_back(device.name);
      continue;
    }
    device.ops.insert(before->second->ops.begin(), before->second->ops.end());
    if (!(device.input_bytes_per_second > 0)) {
      device.input_bytes_per_second = before->second->input_bytes_per_second;
    }
  }
  return dropped;
}

}  // namespace weft
