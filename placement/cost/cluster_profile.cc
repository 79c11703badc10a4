#include "placement/cost/cluster_profile.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "placement/cost/published_specs.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// What workers of one host, and of two, have where the spec says nothing.
constexpr char kWithinHost[] = "loopback";
constexpr char kBetweenHosts[] = "ethernet-10g";
constexpr int kCommonPcie = 4;  // the generation of a host of which nothing newer is known
// In LinkSpec::from and to: every host.
constexpr char kAny[] = "*";

class SpecProfile {
 public:
  explicit SpecProfile(const ClusterSpec& cluster) : cluster_(cluster) {}

  absl::StatusOr<ClusterProfile> Make() {
    profile_.cluster_digest = cluster_.Digest();
    bool any_gpu = false;
    for (const WorkerSpec& worker : cluster_.workers) {
      any_gpu = any_gpu || worker.device == DeviceKind::kCuda;
      WEFT_RETURN_IF_ERROR(Annotate(AddWorker(worker), absl::StrCat("worker '", worker.name, "'")));
    }
    WEFT_ASSIGN_OR_RETURN(profile_.within_host,
                          PublishedLink(any_gpu ? LinkOfGpus() : kWithinHost));
    WEFT_ASSIGN_OR_RETURN(profile_.between_hosts, PublishedLink(kBetweenHosts));
    // Those of all hosts first: the others start from them.
    for (const bool of_all : {true, false}) {
      for (const LinkSpec& link : cluster_.links) {
        if ((link.from == kAny) != of_all) continue;
        WEFT_RETURN_IF_ERROR(Annotate(AddLink(link), absl::StrCat("link from '", link.from, "'")));
      }
    }
    return std::move(profile_);
  }

 private:
  absl::Status AddWorker(const WorkerSpec& worker) {
    const int host = hosts_.try_emplace(worker.host, static_cast<int>(hosts_.size())).first->second;
    profile_.host_of.push_back(host);
    const auto key = std::tuple(worker.device, worker.model, worker.threads, worker.memory_bytes);
    const auto [entry, is_new] =
        devices_.try_emplace(key, static_cast<int>(profile_.devices.size()));
    if (is_new) {
      WEFT_ASSIGN_OR_RETURN(DeviceProfile device, DeviceOf(worker));
      profile_.devices.push_back(std::move(device));
    }
    profile_.device_of.push_back(entry->second);
    return absl::OkStatus();
  }

  static absl::StatusOr<DeviceProfile> DeviceOf(const WorkerSpec& worker) {
    DeviceProfile device;
    if (!worker.model.empty()) {
      WEFT_ASSIGN_OR_RETURN(device, PublishedDevice(worker.model));
    } else {
      device =
          worker.device == DeviceKind::kCuda ? CommonGpu() : CommonCpu(std::max(1, worker.threads));
    }
    if (worker.memory_bytes > 0) device.memory_bytes = worker.memory_bytes;
    return device;
  }

  // NVLink where all workers have cards with the same, else PCI Express of the oldest.
  std::string LinkOfGpus() const {
    std::set<std::string> nvlinks;
    int generation = kCommonPcie;
    for (const WorkerSpec& worker : cluster_.workers) {
      const absl::StatusOr<GpuFigures> gpu = PublishedGpu(worker.model);
      nvlinks.insert(gpu.ok() ? gpu->nvlink : "");
      if (gpu.ok()) generation = std::min(generation, gpu->pcie_generation);
    }
    if (nvlinks.size() == 1 && !nvlinks.begin()->empty()) return *nvlinks.begin();
    return absl::StrCat("pcie", generation);
  }

  absl::Status AddLink(const LinkSpec& spec) {
    const bool within = spec.to.empty();
    LinkProfile link = within ? profile_.within_host : profile_.between_hosts;
    if (!spec.kind.empty()) {
      WEFT_ASSIGN_OR_RETURN(link, PublishedLink(spec.kind));
    }
    if (spec.bandwidth_bytes_per_second > 0) {
      link.bytes_per_second = spec.bandwidth_bytes_per_second;
      link.source = "the cluster spec";
    }
    if (spec.latency_seconds > 0) {
      link.latency_seconds = spec.latency_seconds;
      link.source = "the cluster spec";
    }
    if (spec.rails > 0) link.rails = spec.rails;
    if (spec.from == kAny) {
      (within ? profile_.within_host : profile_.between_hosts) = link;
      return absl::OkStatus();
    }
    const auto from = hosts_.find(spec.from);
    const auto to = within ? from : hosts_.find(spec.to);
    if (from == hosts_.end() || to == hosts_.end()) {
      return absl::InvalidArgumentError("no worker is on one of its hosts");
    }
    profile_.links[{from->second, to->second}] = link;
    profile_.links[{to->second, from->second}] = link;
    return absl::OkStatus();
  }

  const ClusterSpec& cluster_;
  ClusterProfile profile_;
  absl::flat_hash_map<std::string, int> hosts_;
  std::map<std::tuple<DeviceKind, std::string, int, int64_t>, int> devices_;
};

}  // namespace

const char* OpFamilyName(OpFamily family) {
  constexpr const char* kNames[kOpFamilies] = {"movement", "elementwise", "contraction"};
  return kNames[static_cast<int>(family)];
}

double RateCurve::At(double work) const {
  if (points.empty()) return 0;
  const auto above = std::lower_bound(points.begin(), points.end(), work,
                                      [](const Point& p, double w) { return p.work < w; });
  if (above == points.begin()) return points.front().per_second;
  if (above == points.end()) return points.back().per_second;
  const Point& a = *(above - 1);
  const Point& b = *above;
  const double share = std::log(work / a.work) / std::log(b.work / a.work);
  return a.per_second * std::pow(b.per_second / a.per_second, share);
}

const RateCurve& DeviceProfile::ContractionRate(DType dtype) const {
  static const auto* const none = new RateCurve();
  auto curve = contraction.find(dtype);
  if (curve == contraction.end()) curve = contraction.find(DType::kFloat32);
  return curve == contraction.end() ? *none : curve->second;
}

const LinkProfile& ClusterProfile::link(int from_worker, int to_worker) const {
  const int from = host_of[from_worker];
  const int to = host_of[to_worker];
  if (!links.empty()) {
    const auto own = links.find({from, to});
    if (own != links.end()) return own->second;
  }
  return from == to ? within_host : between_hosts;
}

absl::StatusOr<ClusterProfile> ProfileOfSpec(const ClusterSpec& cluster) {
  return SpecProfile(cluster).Make();
}

ClusterProfile PartOfProfile(const ClusterProfile& profile, const std::vector<int>& workers) {
  ClusterProfile part = profile;
  part.cluster_digest = 0;
  part.device_of.clear();
  part.host_of.clear();
  part.links.clear();
  std::map<int, int> hosts;  // new numbers
  for (const int worker : workers) {
    const auto index = static_cast<size_t>(worker);
    const int host =
        hosts.try_emplace(profile.host_of[index], static_cast<int>(hosts.size())).first->second;
    part.device_of.push_back(profile.device_of[index]);
    part.host_of.push_back(host);
  }
  for (const auto& [ends, link] : profile.links) {
    const auto from = hosts.find(ends.first);
    const auto to = hosts.find(ends.second);
    if (from == hosts.end() || to == hosts.end()) continue;
    part.links[{from->second, to->second}] = link;
  }
  return part;
}

absl::Status CheckProfileFits(const ClusterProfile& profile, const ClusterSpec& cluster) {
  const uint64_t digest = cluster.Digest();
  if (profile.cluster_digest == 0 &&
      profile.num_workers() == static_cast<int>(cluster.workers.size())) {
    return absl::OkStatus();
  }
  if (profile.cluster_digest == digest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the profile was made for another cluster, of %d workers and digest %016x; this one has %d "
      "and %016x: calibrate it",
      profile.num_workers(), profile.cluster_digest, static_cast<int>(cluster.workers.size()),
      digest));
}

absl::Status CheckProfiledCard(const ClusterProfile& profile, int worker, const std::string& name,
                               const std::string& card) {
  const std::string& measured = profile.device(worker).card;
  if (measured.empty() || card.empty() || measured == card) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the profile was measured with another card: '", name, "' had ", measured,
                   ", and has ", card, "; calibrate it anew, or leave out --calibration"));
}

std::string NoteOnProfiledDriver(const ClusterProfile& profile, int worker, const std::string& name,
                                 const std::string& driver) {
  const std::string& measured = profile.device(worker).driver;
  if (measured.empty() || driver.empty() || measured == driver) return "";
  return absl::StrCat("the profile of '", name, "' was measured with driver ", measured,
                      ", and it has driver ", driver, "; predictions may be off");
}

}  // namespace weft
