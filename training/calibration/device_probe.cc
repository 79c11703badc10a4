#include "training/calibration/device_probe.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "placement/cost/device_profile.h"
#include "placement/cost/op_key.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kProgram[] = "calibrate/device";
// Sides of square products, and elements of what is added, copied and activated.
constexpr int64_t kSides[] = {8, 16, 32, 64, 128, 256, 512, 1024};
constexpr int64_t kElements[] = {16, 256, 4096, 32768, 262'144, 1'048'576, 4'194'304};
constexpr int64_t kActivated = 65'536;  // elements that stay in a cache
// Tiny nodes one after the other, of which the last ones find everything in the caches.
constexpr int kTiny = 16;
constexpr int kHotTiny = 8;
constexpr int64_t kTinyElements = 16;
constexpr char kTinyFamily[] = "tiny";

// A graph of one node per op and size over variables, run once per step: small ones first, while
// large ones have not yet driven everything out of the caches.
class ProbeGraph {
 public:
  ProbeGraph(int ranks, int threads) {
    partition_.mesh.data = ranks;
    partition_.threads = threads;
    partition_.global_batch = 1;
    partition_.actions = {{Action::Kind::kUpdate, 0}};
  }

  absl::StatusOr<Partition> Make(RankId rank) {
    partition_.rank = rank;
    for (int i = 0; i < kTiny; ++i) {
      const ValueId vector = Zeros(Shape{kTinyElements});
      Add(kTinyFamily, i, "Add", {vector, vector}, {});
    }
    Add("activation", kActivated, "Tanh", {Zeros(Shape{kActivated})}, {});
    for (size_t i = 0; i < std::max(std::size(kSides), std::size(kElements)); ++i) {
      if (i < std::size(kSides)) AddProduct(kSides[i]);
      if (i < std::size(kElements)) AddElements(kElements[i]);
    }
    WEFT_RETURN_IF_ERROR(Annotate(status_, "building what calibrates devices"));
    return std::move(partition_);
  }

 private:
  void AddProduct(int64_t side) {
    const ValueId square = Zeros(Shape{side, side});
    Add("contraction", side, "MatMul", {square, square}, {});
  }
  void AddElements(int64_t elements) {
    const ValueId vector = Zeros(Shape{elements});
    Add("elementwise", elements, "Add", {vector, vector}, {});
    // Rows that stay together, as where heads of an attention change places with positions.
    const ValueId rows = Zeros(Shape{4, elements / 16, 4});
    Add("movement", elements, "Transpose", {rows}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
  }
  ValueId Zeros(const Shape& shape) {
    const std::string name = absl::StrCat("calibrate", shape.ToString());
    if (const auto known = partition_.end.FindValue(name)) return *known;
    VariableShard shard;
    shard.name = name;
    shard.dtype = DType::kFloat32;
    shard.global_shape = shard.local_shape = shape;
    shard.is_primary = true;
    partition_.variables.push_back(shard);
    return partition_.end.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(),
                                      /*trainable=*/false);
  }

  void Add(const std::string& family, int64_t size, const std::string& op,
           std::vector<ValueId> inputs, Attributes attributes) {
    GraphBuilder builder(partition_.end);
    builder.set_phase(Phase::kUpdate);
    const ValueId output = builder.Op(op, std::move(inputs), std::move(attributes));
    status_.Update(builder.status());
    if (!output.valid()) return;
    Node& node = partition_.end.node(partition_.end.value(output).producer);
    node.name = absl::StrCat(family, "/", size);
    partition_.end.AddOutput(output);
  }

  Partition partition_;
  absl::Status status_;
};

// What the nodes of one rank have shown.
class ProbedRates {
 public:
  ProbedRates(const Partition& partition, const ProbeTimes& times)
      : partition_(partition), times_(times) {}

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
    for (const NodeId id : partition_.end.node_ids()) {
      const Node& node = partition_.end.node(id);
      const auto time = times_.node_seconds.find(node.name);
      if (time == times_.node_seconds.end()) continue;
      WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(partition_.end, node));
      AddTo(device, node.name.substr(0, node.name.find('/')), CostOf(view), time->second);
    }
    return device;
  }

 private:
  // A rate says what a node takes beyond the overhead of a node.
  static void AddTo(DeviceProfile& device, const std::string& family, const Cost& cost,
                    double seconds) {
    const double work = std::max(seconds - device.node_seconds, 0.1 * seconds);
    if (family == "contraction") {
      device.contraction[DType::kFloat32].points.push_back({cost.flops, cost.flops / work});
    } else if (family == "elementwise") {
      device.elementwise.points.push_back({cost.bytes, cost.bytes / work});
    } else if (family == "movement") {
      device.movement.points.push_back({cost.bytes, cost.bytes / work});
    } else if (family != kTinyFamily) {
      device.elementwise_flops = cost.flops / work;
    }
  }

  const Partition& partition_;
  const ProbeTimes& times_;
};

}  // namespace

absl::StatusOr<std::vector<DeviceProfile>> ProbeDevices(ProbeSession& session,
                                                        const std::vector<DeviceProfile>& start,
                                                        const std::vector<int>& threads,
                                                        double seconds) {
  std::vector<ProbeProgram> programs(1);
  programs[0].name = kProgram;
  for (int rank = 0; rank < session.size(); ++rank) {
    WEFT_ASSIGN_OR_RETURN(Partition partition,
                          ProbeGraph(session.size(), threads[rank]).Make(RankId(rank)));
    programs[0].partitions.push_back(std::move(partition));
  }
  WEFT_RETURN_IF_ERROR(session.Begin(programs, "", {}));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ProbeTimes> times,
                        session.Measure(kProgram, seconds, {}));
  std::vector<DeviceProfile> devices;
  for (int rank = 0; rank < session.size(); ++rank) {
    WEFT_ASSIGN_OR_RETURN(DeviceProfile device,
                          ProbedRates(programs[0].partitions[rank], times[rank]).Over(start[rank]));
    device.step_seconds = times[rank].step_seconds;
    for (const auto& [node, taken] : times[rank].node_seconds) device.step_seconds -= taken;
    device.step_seconds = std::max(0.0, device.step_seconds);
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace weft
