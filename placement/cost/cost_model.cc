#include "placement/cost/cost_model.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/node_description.h"
#include "placement/cost/op_key.h"
#include "placement/cost/published_specs.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

// By their ratio to `wanted`.
bool IsNearer(int64_t a, int64_t b, int64_t wanted) {
  return std::max(a, wanted) * std::min(b, wanted) < std::max(b, wanted) * std::min(a, wanted);
}

absl::Status CheckCurve(const DeviceProfile& device, const char* what, const RateCurve& curve) {
  const bool positive = std::all_of(curve.points.begin(), curve.points.end(),
                                    [](const auto& p) { return p.work > 0 && p.per_second > 0; });
  if (!curve.points.empty() && positive) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("device '", device.name, "' of the profile has no positive rate for ", what));
}

absl::Status CheckDevice(const DeviceProfile& device) {
  absl::Status status = CheckCurve(device, "contractions", device.ContractionRate(DType::kFloat32));
  if (status.ok()) status = CheckCurve(device, "elementwise ops", device.elementwise);
  if (status.ok()) status = CheckCurve(device, "movement", device.movement);
  if (status.ok() && device.threads < 1) {
    status = absl::InvalidArgumentError(
        absl::StrCat("device '", device.name, "' of the profile has ", device.threads, " threads"));
  }
  return status;
}

absl::Status CheckLink(const LinkProfile& link) {
  if (link.bytes_per_second > 0 && link.latency_seconds >= 0 && link.rails > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("a link of the profile has no positive bandwidth or no rails");
}

LinkCost CostOfLink(const LinkProfile& link) {
  const double exchange =
      link.exchange_bytes_per_second > 0 ? link.exchange_bytes_per_second : link.bytes_per_second;
  return {link.latency_seconds, link.bytes_per_second, link.send_seconds,
          link.receive_seconds, link.contention,       exchange};
}

double SecondsOn(const DeviceProfile& device, const Cost& cost, OpFamily family, DType dtype,
                 int threads) {
  // Arithmetic follows the threads; memory is shared by them.
  const double more = static_cast<double>(std::max(threads, 1)) / device.threads;
  switch (family) {
    case OpFamily::kMovement:
      return cost.bytes > 0 ? cost.bytes / device.movement.At(cost.bytes) : 0;
    case OpFamily::kElementwise: {
      const double in_memory = cost.bytes > 0 ? cost.bytes / device.elementwise.At(cost.bytes) : 0;
      const double in_arithmetic =
          device.elementwise_flops > 0 ? cost.flops / (device.elementwise_flops * more) : 0;
      return std::max(in_memory, in_arithmetic);
    }
    case OpFamily::kContraction:
      break;
  }
  const double in_arithmetic = cost.flops / (device.ContractionRate(dtype).At(cost.flops) * more);
  const double in_memory = cost.bytes > 0 ? cost.bytes / device.movement.At(cost.bytes) : 0;
  return std::max(in_arithmetic, in_memory) +
         device.product_exposed * std::min(in_arithmetic, in_memory);
}

}  // namespace

std::string PlanSignature(const Plan& plan) {
  std::string text = absl::StrFormat(
      "dp=%d,tp=%d,pp=%d,micro=%d,schedule=%s,chunks=%d,zero=%d,threads=%d,bucket=%d",
      plan.mesh.data, plan.mesh.tensor, plan.mesh.pipeline, plan.micro_batches, plan.schedule,
      plan.chunks, plan.zero, plan.threads_per_worker, plan.bucket_bytes);
  if (!plan.rank_threads.empty()) {
    absl::StrAppend(&text, ",rank_threads=", absl::StrJoin(plan.rank_threads, ":"));
  }
  if (!plan.shares.empty()) absl::StrAppend(&text, ",shares=", absl::StrJoin(plan.shares, ":"));
  if (!std::is_sorted(plan.workers.begin(), plan.workers.end()) ||
      (!plan.workers.empty() && plan.workers.back() >= plan.mesh.size())) {
    absl::StrAppend(&text, ",workers=", absl::StrJoin(plan.workers, ":"));
  }
  if (plan.strict) text += ",strict";
  if (plan.tf32) text += ",tf32";
  if (plan.uses_cudnn) text += ",cudnn";
  if (plan.fuses_nodes) text += ",fused";
  if (!plan.host_ops.empty()) {
    absl::StrAppend(&text, ",host_ops=", absl::StrJoin(plan.host_ops, ":"));
  }
  if (!plan.recompute.empty()) absl::StrAppend(&text, ",recomputed=", plan.recompute.size());
  return text;
}

absl::StatusOr<CostModel> CostModel::Create(ClusterProfile profile, CostCorrections corrections) {
  if (profile.device_of.empty() || profile.device_of.size() != profile.host_of.size()) {
    return absl::InvalidArgumentError("the profile has no workers, or not a host for each");
  }
  for (const int device : profile.device_of) {
    if (device >= 0 && device < static_cast<int>(profile.devices.size())) continue;
    return absl::InvalidArgumentError(absl::StrCat("the profile has a worker with device ", device,
                                                   " of ", profile.devices.size()));
  }
  auto measured = std::make_shared<Measurements>();
  std::set<int> in_flight;
  for (const DeviceProfile& device : profile.devices) {
    if (absl::Status status = CheckDevice(device); !status.ok()) return status;
    OfDevice& known = measured->devices.emplace_back(OfDevice{{}, KindIndex(device)});
    for (const auto& [op, measurement] : device.ops) {  // by key, threads, in_flight
      known.ops[MixThreads(op.key, op.threads)].push_back({op.in_flight, measurement.seconds});
      in_flight.insert(op.in_flight);
    }
  }
  for (const auto& [hosts, link] : profile.links) {
    if (absl::Status status = CheckLink(link); !status.ok()) return status;
  }
  for (const LinkProfile* link : {&profile.within_host, &profile.between_hosts}) {
    if (absl::Status status = CheckLink(*link); !status.ok()) return status;
  }
  measured->in_flight.assign(in_flight.begin(), in_flight.end());
  CostModel model;
  model.has_devices_ =
      std::any_of(profile.device_of.begin(), profile.device_of.end(), [&profile](int device) {
        return profile.devices[static_cast<size_t>(device)].host_bytes_per_second > 0;
      });
  model.profile_ = std::make_shared<const ClusterProfile>(std::move(profile));
  model.corrections_ = std::move(corrections);
  model.measured_ = std::move(measured);
  return model;
}

absl::StatusOr<CostModel> CostModel::OfSpec(const ClusterSpec& cluster) {
  absl::StatusOr<ClusterProfile> profile = ProfileOfSpec(cluster);
  if (!profile.ok()) return profile.status();
  return Create(*std::move(profile));
}

CostModel CostModel::With(CostCorrections corrections) const {
  CostModel model = *this;
  model.corrections_ = std::move(corrections);
  return model;
}

CostModel CostModel::WithHostOps(const std::vector<std::string>& host_ops) const {
  CostModel model = *this;
  model.host_ops_ = host_ops;
  return model;
}

CostModel CostModel::WithWays(DeviceWays ways) const {
  CostModel model = *this;
  model.ways_ = std::move(ways);
  return model;
}

HostCopies HostCopiesOf(const NodeView& node) {
  HostCopies copies;
  const auto add = [&copies](DType dtype, const Shape& shape) {
    copies.bytes += DTypeBytes(dtype, shape.num_elements());
    ++copies.copies;
  };
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (node.HasInput(i)) add(node.InputDType(i), node.InputShape(i));
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (node.HasOutput(i)) add(node.OutputDType(i), node.OutputShape(i));
  }
  return copies;
}

bool CostModel::RunsOnHost(const NodeView& node, int worker) const {
  if (host_ops_.empty() || !(profile_->device(worker).host_bytes_per_second > 0)) return false;
  const std::string op = FullOpName(node.node());
  return std::any_of(host_ops_.begin(), host_ops_.end(), [&](const std::string& known) {
    return known == op || NamesTypesOf(known, node);
  });
}

double CostModel::HostSeconds(const NodeView& node, int worker, int threads) const {
  const DeviceProfile& device = profile_->device(worker);
  const HostCopies copies = HostCopiesOf(node);
  const DeviceProfile host = CommonCpu(std::max(threads, 1));
  const Cost cost = CostOf(node);
  const DType dtype = ComputedType(node);
  return copies.copies * device.host_copy_seconds +
         static_cast<double>(copies.bytes) / device.host_bytes_per_second + host.node_seconds +
         SecondsOn(host, cost, FamilyOf(cost, dtype), dtype, threads);
}

double CostModel::NodeSeconds(const NodeView& node, int worker, int threads, int in_flight) const {
  const OfDevice& known = measured_->devices[profile_->device_of[worker]];
  if (!known.ops.empty()) {
    const auto measured = known.ops.find(MixThreads(OpKey(node), threads));
    if (measured != known.ops.end()) {
      const auto nearest =
          std::min_element(measured->second.begin(), measured->second.end(),
                           [in_flight](const Measurement& a, const Measurement& b) {
                             return IsNearer(a.in_flight, b.in_flight, in_flight);
                           });
      return nearest->seconds;
    }
  }
  const Cost cost = CostOf(node);
  if (!(cost.flops > 0) && !(cost.bytes > 0)) return 0;
  if (RunsOnHost(node, worker)) return HostSeconds(node, worker, threads);
  const std::optional<double> of_kind = known.kinds.Seconds(node, cost, threads, in_flight);
  if (of_kind.has_value()) return *of_kind;
  return node_seconds(worker) + WorkSeconds(cost, ComputedType(node), worker, threads);
}

int CostModel::MeasuredInFlight(int in_flight) const {
  const std::vector<int>& measured = measured_->in_flight;
  const auto nearest =
      std::min_element(measured.begin(), measured.end(),
                       [in_flight](int a, int b) { return IsNearer(a, b, in_flight); });
  return nearest == measured.end() ? 1 : *nearest;
}

bool CostModel::IsMeasured(const NodeView& node, int worker, int threads) const {
  const auto& ops = measured_->devices[profile_->device_of[worker]].ops;
  return ops.contains(MixThreads(OpKey(node), threads));
}

double CostModel::WorkSeconds(const Cost& cost, DType dtype, int worker, int threads) const {
  return WorkSeconds(cost, FamilyOf(cost, dtype), dtype, worker, threads);
}

double CostModel::WorkSeconds(const Cost& cost, OpFamily family, DType dtype, int worker,
                              int threads) const {
  return SecondsOn(profile_->device(worker), cost, family, dtype, threads);
}

int CostModel::CardOf(int worker) const {
  const auto index = static_cast<size_t>(worker);
  return index < ways_.cards.size() ? ways_.cards[index] : worker;
}

MessageWay CostModel::WayBetween(int from_worker, int to_worker) const {
  const bool is_direct = has_devices_ && HasOwnMemory(from_worker) && HasOwnMemory(to_worker) &&
                         (from_worker == to_worker || CardOf(from_worker) != CardOf(to_worker));
  return is_direct ? MessageWay::kDirect : MessageWay::kHost;
}

MessageWay CostModel::WayOfGroup(std::span<const int> workers) const {
  if (!has_devices_ || ways_.host_collectives) return MessageWay::kHost;
  std::set<int> cards;
  const bool is_direct = std::all_of(workers.begin(), workers.end(), [&](int worker) {
    return HasOwnMemory(worker) && (ways_.cards.empty() || cards.insert(CardOf(worker)).second);
  });
  return is_direct ? MessageWay::kDirect : MessageWay::kHost;
}

LinkCost CostModel::HostLink(int from_worker, int to_worker) const {
  LinkCost own = CostOfLink(profile_->link(from_worker, to_worker));
  if (!has_devices_ || profile_->link(from_worker, to_worker).through_host) return own;
  const bool within = host(from_worker) == host(to_worker);
  const bool has_device = HasOwnMemory(from_worker) || HasOwnMemory(to_worker);
  if (!has_device && !within) return own;
  static const LinkCost loopback = CostOfLink(*PublishedLink("loopback"));
  static const LinkCost stream = CostOfLink(*PublishedLink("ethernet-100g"));
  if (within) return loopback;
  own.latency_seconds = std::max(own.latency_seconds, stream.latency_seconds);
  own.bytes_per_second = std::min(own.bytes_per_second, stream.bytes_per_second);
  own.exchange_bytes_per_second =
      std::min(own.exchange_bytes_per_second, stream.exchange_bytes_per_second);
  own.send_seconds = std::max(own.send_seconds, stream.send_seconds);
  own.receive_seconds = std::max(own.receive_seconds, stream.receive_seconds);
  return own;
}

LinkCost CostModel::Link(int from_worker, int to_worker, MessageWay way) const {
  const LinkProfile& own = profile_->link(from_worker, to_worker);
  if (way == MessageWay::kDirect || !has_devices_) return CostOfLink(own);
  LinkCost cost = HostLink(from_worker, to_worker);
  if (own.through_host) return cost;
  for (const int worker : {from_worker, to_worker}) {
    if (!HasOwnMemory(worker)) continue;
    const DeviceProfile& device = profile_->device(worker);
    cost.latency_seconds += device.host_copy_seconds;
    for (double* const rate : {&cost.bytes_per_second, &cost.exchange_bytes_per_second}) {
      *rate = 1 / (1 / *rate + 1 / device.host_bytes_per_second);
    }
  }
  return cost;
}

bool CostModel::is_calibrated() const {
  const std::vector<DeviceProfile>& devices = profile_->devices;
  return !devices.empty() &&
         std::all_of(devices.begin(), devices.end(),
                     [](const DeviceProfile& device) { return device.source == kMeasuredSource; });
}

double CostModel::StepFactor(const Plan& plan) const {
  const auto own = corrections_.plans.find(PlanSignature(plan));
  return own != corrections_.plans.end() ? own->second : corrections_.step;
}

}  // namespace weft
