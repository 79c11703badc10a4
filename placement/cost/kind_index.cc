#include "placement/cost/kind_index.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/container/inlined_vector.h"
#include "placement/cost/op_key.h"

namespace weft {
namespace {

using LogDims = absl::InlinedVector<double, 24>;

void AddLog(int64_t dim, LogDims& logs) {
  logs.push_back(dim > 1 ? std::log(static_cast<double>(dim)) : 0.0);
}

LogDims LogDimsOf(const NodeView& node) {
  LogDims logs;
  for (int i = 0; i < node.num_inputs(); ++i) {
    for (const int64_t dim : node.InputShape(i).dims()) AddLog(dim, logs);
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    for (const int64_t dim : node.OutputShape(i).dims()) AddLog(dim, logs);
  }
  return logs;
}

double SumOf(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double Distance(const double* a, std::span<const double> b) {
  double distance = 0;
  for (size_t i = 0; i < b.size(); ++i) distance += std::abs(a[i] - b[i]);
  return distance;
}

double BestRate(const RateCurve& curve) {
  double best = 0;
  for (const RateCurve::Point& point : curve.points) best = std::max(best, point.per_second);
  return best;
}

}  // namespace

KindIndex::KindIndex(const DeviceProfile& device)
    : node_seconds_(device.node_seconds),
      bytes_per_second_(device.movement.points.empty() ? 0
                                                       : device.movement.points.back().per_second) {
  for (const auto& [op, measured] : device.ops) Add(device, op, measured);
  for (auto& [key, kind] : kinds_) Sort(kind);
}

void KindIndex::Add(const DeviceProfile& device, const MeasuredOp& op,
                    const OpMeasurement& measured) {
  const OpWork& work = measured.work;
  if (work.kind == 0 || !(measured.seconds > 0)) return;
  if (!(work.flops > 0) && !(work.bytes > 0)) return;
  Kind& kind = kinds_[MixThreads(work.kind, op.threads)];
  if (kind.sizes.empty()) {
    kind.rank = work.dims.size() + 1;
    const double threads = static_cast<double>(std::max(op.threads, 1)) / device.threads;
    kind.flops_per_second = BestRate(device.ContractionRate(work.dtype)) * threads;
  }
  if (work.dims.size() + 1 != kind.rank) return;
  LogDims logs;
  for (const int64_t dim : work.dims) AddLog(dim, logs);
  AddLog(op.in_flight, logs);
  kind.sizes.push_back(SumOf(logs));
  kind.log_dims.insert(kind.log_dims.end(), logs.begin(), logs.end());
  kind.log_factors.push_back(std::log(measured.seconds / Roofline(kind, {work.flops, work.bytes})));
}

void KindIndex::Sort(Kind& kind) {
  std::vector<size_t> order(kind.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return kind.sizes[a] < kind.sizes[b]; });
  Kind sorted;
  sorted.flops_per_second = kind.flops_per_second;
  sorted.rank = kind.rank;
  for (const size_t i : order) {
    sorted.sizes.push_back(kind.sizes[i]);
    sorted.log_factors.push_back(kind.log_factors[i]);
    const auto first = kind.log_dims.begin() + static_cast<std::ptrdiff_t>(i * kind.rank);
    sorted.log_dims.insert(sorted.log_dims.end(), first,
                           first + static_cast<std::ptrdiff_t>(kind.rank));
  }
  kind = std::move(sorted);
}

double KindIndex::Roofline(const Kind& kind, const Cost& cost) const {
  const double in_arithmetic = cost.flops > 0 ? cost.flops / kind.flops_per_second : 0;
  const double in_memory = cost.bytes > 0 ? cost.bytes / bytes_per_second_ : 0;
  return node_seconds_ + std::max(in_arithmetic, in_memory);
}

// Ops are near whose dimensions are, all of them: one with the same weights and another batch is
// nearer than one that happens to do as much work. Sizes differ by no more than the distance, so
// that the search for the nearest stops early.
double KindIndex::LogFactor(const Kind& kind, std::span<const double> log_dims) {
  const double size = SumOf(log_dims);
  const auto split = static_cast<size_t>(
      std::upper_bound(kind.sizes.begin(), kind.sizes.end(), size) - kind.sizes.begin());
  std::optional<Nearest> below;
  for (size_t i = split; i-- > 0;) {
    if (below.has_value() && size - kind.sizes[i] >= below->distance) break;
    const double distance = Distance(&kind.log_dims[i * kind.rank], log_dims);
    if (!below.has_value() || distance < below->distance) below = {distance, kind.log_factors[i]};
  }
  std::optional<Nearest> above;
  for (size_t i = split; i < kind.sizes.size(); ++i) {
    if (above.has_value() && kind.sizes[i] - size >= above->distance) break;
    const double distance = Distance(&kind.log_dims[i * kind.rank], log_dims);
    if (!above.has_value() || distance < above->distance) above = {distance, kind.log_factors[i]};
  }
  if (!below.has_value()) return above->log_factor;
  if (!above.has_value()) return below->log_factor;
  const double share = below->distance / (below->distance + above->distance);
  return below->log_factor * (1 - share) + above->log_factor * share;
}

std::optional<double> KindIndex::Seconds(const NodeView& node, const Cost& cost, int threads,
                                         int in_flight) const {
  if (kinds_.empty()) return std::nullopt;
  const auto kind = kinds_.find(MixThreads(KindKey(node), threads));
  if (kind == kinds_.end()) return std::nullopt;
  LogDims log_dims = LogDimsOf(node);
  AddLog(in_flight, log_dims);
  if (log_dims.size() != kind->second.rank) return std::nullopt;
  return Roofline(kind->second, cost) * std::exp(LogFactor(kind->second, log_dims));
}

}  // namespace weft
