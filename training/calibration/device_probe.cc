#include "training/calibration/device_probe.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "placement/cost/device_profile.h"
#include "placement/cost/op_key.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "training/calibration/probe_sizes.h"

namespace weft {
namespace {

// Of a card: programs, of which the next begins where about kRuns runs of it take less than
// kPatience times what was given.
constexpr double kRuns = 16;
constexpr double kPatience = 10;
constexpr int64_t kShareOfCard = 4;  // of its memory a program takes no more than a fourth
// Tiny nodes one after the other, of which the last ones find everything in the caches.
constexpr int kTiny = 16;
constexpr int kHotTiny = 8;
constexpr int64_t kTinyElements = 16;
constexpr char kTinyFamily[] = "tiny";

// A graph of one node per op and size over variables, run once per step: small ones first, while
// large ones have not yet driven everything out of the caches.
class ProbeGraph {
 public:
  ProbeGraph(int ranks, RankId rank, int threads) {
    partition_.rank = rank;
    partition_.mesh.data = ranks;
    partition_.threads = threads;
    partition_.global_batch = 1;
    partition_.actions = {{Action::Kind::kUpdate, 0}};
  }

  void AddTiny() {
    for (int i = 0; i < kTiny; ++i) {
      const ValueId vector = Zeros(Shape{kTinyElements});
      Add(kTinyFamily, absl::StrCat(i), "Add", {vector, vector}, {});
    }
  }

  void AddSizes(const ProbeSizes& sizes) {
    for (const int64_t elements : sizes.activated) {
      Add("activation", absl::StrCat(elements), "Tanh", {Zeros(Shape{elements})}, {});
    }
    size_t longest = sizes.elements.size();
    for (const ProbedProducts& products : sizes.products) {
      longest = std::max(longest, products.sides.size());
    }
    for (size_t i = 0; i < longest; ++i) {
      for (const ProbedProducts& products : sizes.products) {
        if (i >= products.sides.size()) continue;
        AddProduct(products.dtype, products.sides[i], sizes.has_random_operands);
      }
      if (i < sizes.elements.size()) AddElements(sizes.elements[i]);
    }
  }

  absl::StatusOr<Partition> Finish() {
    WEFT_RETURN_IF_ERROR(Annotate(status_, "building what calibrates devices"));
    return std::move(partition_);
  }

 private:
  void AddProduct(DType dtype, int64_t side, bool is_random) {
    const std::string size = absl::StrCat(std::string(DTypeName(dtype)), "/", side);
    const ValueId square = is_random ? Add("operand", size, "RandomNormal", {},
                                           {{"shape", std::vector<int64_t>{side, side}},
                                            {"dtype", static_cast<int64_t>(dtype)}})
                                     : Zeros(Shape{side, side}, dtype);
    if (square.valid()) Add("contraction", size, "MatMul", {square, square}, {});
  }
  void AddElements(int64_t elements) {
    const std::string size = absl::StrCat(elements);
    const ValueId vector = Zeros(Shape{elements});
    Add("elementwise", size, "Add", {vector, vector}, {});
    // Rows that stay together, as where heads of an attention change places with positions.
    const ValueId rows = Zeros(Shape{4, elements / 16, 4});
    Add("movement", size, "Transpose", {rows}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
  }
  ValueId Zeros(const Shape& shape, DType dtype = DType::kFloat32) {
    const std::string name =
        absl::StrCat("calibrate/", std::string(DTypeName(dtype)), shape.ToString());
    if (const auto known = partition_.end.FindValue(name)) return *known;
    VariableShard shard;
    shard.name = name;
    shard.dtype = dtype;
    shard.global_shape = shard.local_shape = shape;
    shard.is_primary = true;
    partition_.variables.push_back(shard);
    return partition_.end.AddVariable(name, {ValueKind::kTensor, dtype, shape}, Tensor(),
                                      /*trainable=*/false);
  }

  // Its output, kept to the end of the step.
  ValueId Add(const std::string& family, const std::string& size, const std::string& op,
              std::vector<ValueId> inputs, Attributes attributes) {
    GraphBuilder builder(partition_.end);
    builder.set_phase(Phase::kUpdate);
    const ValueId output = builder.Op(op, std::move(inputs), std::move(attributes));
    status_.Update(builder.status());
    if (!output.valid()) return output;
    Node& node = partition_.end.node(partition_.end.value(output).producer);
    node.name = absl::StrCat(family, "/", size);
    partition_.end.AddOutput(output);
    return output;
  }

  Partition partition_;
  absl::Status status_;
};

// What the nodes of one rank have shown.
class ProbedRates {
 public:
  ProbedRates(const Partition& partition, const ProbeTimes& times)
      : partition_(partition), times_(times) {}

  // Of a first program, with tiny nodes.
  absl::StatusOr<DeviceProfile> Over(DeviceProfile device) const {
    std::vector<double> tiny;
    for (int i = kTiny - kHotTiny; i < kTiny; ++i) {
      const auto time = times_.node_seconds.find(absl::StrCat(kTinyFamily, "/", i));
      if (time == times_.node_seconds.end()) {
        return absl::InternalError("the workers do not say what nodes took");
      }
      tiny.push_back(time->second);
    }
    device.source = kMeasuredSource;
    device.threads = partition_.threads;
    std::nth_element(tiny.begin(), tiny.begin() + kHotTiny / 2, tiny.end());
    device.node_seconds = tiny[kHotTiny / 2];
    device.contraction.clear();
    device.elementwise = device.movement = RateCurve();
    device.elementwise_flops = 0;
    // What a product takes for its traffic is in its measured rate.
    device.product_exposed = 0;
    device.step_seconds = times_.step_seconds;
    for (const auto& [node, taken] : times_.node_seconds) device.step_seconds -= taken;
    device.step_seconds = std::max(0.0, device.step_seconds);
    WEFT_RETURN_IF_ERROR(AddTo(device));
    return device;
  }

  // Of a program of larger sizes.
  absl::Status AddTo(DeviceProfile& device) const {
    for (const NodeId id : partition_.end.node_ids()) {
      const Node& node = partition_.end.node(id);
      const auto time = times_.node_seconds.find(node.name);
      if (time == times_.node_seconds.end()) continue;
      WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(partition_.end, node));
      Add(node.name.substr(0, node.name.find('/')), view, time->second, device);
    }
    return absl::OkStatus();
  }

 private:
  // A rate says what a node takes beyond the overhead of a node.
  static void Add(const std::string& family, const NodeView& node, double seconds,
                  DeviceProfile& device) {
    const Cost cost = CostOf(node);
    const double work = std::max(seconds - device.node_seconds, 0.1 * seconds);
    if (family == "contraction") {
      device.contraction[node.InputDType(0)].points.push_back({cost.flops, cost.flops / work});
    } else if (family == "elementwise") {
      device.elementwise.points.push_back({cost.bytes, cost.bytes / work});
    } else if (family == "movement") {
      device.movement.points.push_back({cost.bytes, cost.bytes / work});
    } else if (family == "activation") {
      device.elementwise_flops = std::max(device.elementwise_flops, cost.flops / work);
    }
  }

  const Partition& partition_;
  const ProbeTimes& times_;
};

class DeviceProbe {
 public:
  DeviceProbe(ProbeSession& session, const std::vector<ProbedWorker>& workers, double seconds)
      : session_(session), workers_(workers), seconds_(seconds) {}

  absl::StatusOr<std::vector<DeviceProfile>> Run() {
    const std::vector<ProbeSizes> of_cards = ProbeSizesOfCard();
    const ProbeSizes of_host = ProbeSizesOfHost();
    const double each = seconds_ / static_cast<double>(of_cards.size());
    std::vector<const ProbeSizes*> sizes;
    bool any_host = false;
    for (const ProbedWorker& worker : workers_) {
      sizes.push_back(worker.is_card ? &of_cards.front() : &of_host);
      any_host = any_host || !worker.is_card;
    }
    WEFT_RETURN_IF_ERROR(Measure(0, sizes, any_host ? seconds_ : each));
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      WEFT_ASSIGN_OR_RETURN(DeviceProfile device, RatesOf(rank).Over(workers_[rank].start));
      devices_.push_back(std::move(device));
    }
    for (size_t next = 1; next < of_cards.size(); ++next) {
      if (TakesTooLong()) break;
      bool any = false;
      for (size_t rank = 0; rank < workers_.size(); ++rank) {
        sizes[rank] = Fits(of_cards[next], workers_[rank]) ? &of_cards[next] : nullptr;
        any = any || sizes[rank] != nullptr;
      }
      if (!any) break;
      WEFT_RETURN_IF_ERROR(Measure(next, sizes, each));
      for (size_t rank = 0; rank < workers_.size(); ++rank) {
        WEFT_RETURN_IF_ERROR(RatesOf(rank).AddTo(devices_[rank]));
      }
    }
    return std::move(devices_);
  }

 private:
  static bool Fits(const ProbeSizes& sizes, const ProbedWorker& worker) {
    return worker.is_card &&
           (worker.card_bytes == 0 || ProbeBytes(sizes) <= worker.card_bytes / kShareOfCard);
  }

  // Whether a program after the last one does, by the card that took longest for that.
  bool TakesTooLong() const {
    double step = 0;
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (workers_[rank].is_card) step = std::max(step, times_[rank].step_seconds);
    }
    return kRuns * kProbeGrowth * step > kPatience * seconds_;
  }

  // `sizes` by rank; null: the rank has nothing to do.
  absl::Status Measure(size_t number, const std::vector<const ProbeSizes*>& sizes, double seconds) {
    program_.name = absl::StrCat("calibrate/device/", number);
    program_.partitions.clear();
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      ProbeGraph graph(session_.size(), RankId(static_cast<int>(rank)), workers_[rank].threads);
      if (number == 0) graph.AddTiny();
      if (sizes[rank] != nullptr) graph.AddSizes(*sizes[rank]);
      WEFT_ASSIGN_OR_RETURN(Partition partition, graph.Finish());
      program_.partitions.push_back(std::move(partition));
    }
    std::vector<ProbeProgram> programs;
    programs.push_back(std::move(program_));
    const absl::Status begun = session_.Begin(programs, "", {});
    program_ = std::move(programs.front());
    WEFT_RETURN_IF_ERROR(begun);
    WEFT_ASSIGN_OR_RETURN(times_, session_.Measure(program_.name, seconds, {}));
    return absl::OkStatus();
  }

  ProbedRates RatesOf(size_t rank) const {
    return ProbedRates(program_.partitions[rank], times_[rank]);
  }

  ProbeSession& session_;
  const std::vector<ProbedWorker>& workers_;
  const double seconds_;
  std::vector<DeviceProfile> devices_;
  // What was measured last.
  ProbeProgram program_;
  std::vector<ProbeTimes> times_;
};

}  // namespace

absl::StatusOr<std::vector<DeviceProfile>> ProbeDevices(ProbeSession& session,
                                                        const std::vector<ProbedWorker>& workers,
                                                        double seconds) {
  return DeviceProbe(session, workers, seconds).Run();
}

}  // namespace weft
