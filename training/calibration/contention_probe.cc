#include "training/calibration/contention_probe.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// What is summed: 2 MiB, or as much as a slow link moves while kMaxProducts are computed.
constexpr int64_t kSummedElements = 524'288;
constexpr int64_t kMinElements = 4096;
constexpr double kSumSeconds = 0.03;
constexpr int64_t kSide = 256;           // of the products
constexpr double kProductsPerSum = 1.2;  // in time, so that the sum has somewhere to hide
constexpr double kMaxProducts = 128;

constexpr char kProducts[] = "calibrate/products";
constexpr char kSum[] = "calibrate/sum";
constexpr char kBoth[] = "calibrate/both";

// One backward pass that makes a gradient first and then goes on for some products. The gradient is
// summed over the members beside these, if at all.
class MemberProgram {
 public:
  MemberProgram(int size, int rank, int products, int64_t elements) {
    partition_.mesh.data = size;
    partition_.rank = RankId(rank);
    partition_.global_batch = 1;
    partition_.micro.emplace_back();
    partition_.micro_batches = {{.index = 0, .first = 0, .samples = 1, .graph = 0}};
    partition_.actions = {
        {Action::Kind::kForward, 0}, {Action::Kind::kBackward, 0}, {Action::Kind::kUpdate, 0}};
    Graph& micro = partition_.micro.front();
    GraphBuilder builder(micro);
    builder.set_phase(Phase::kBackward);
    const ValueId zeros = Zeros(micro, Shape{elements});
    Accumulate("gradient", builder.Op("Neg", {zeros}));
    const ValueId square = Zeros(micro, Shape{kSide, kSide});
    ValueId product = square;
    for (int i = 0; i < products; ++i) product = builder.Op("MatMul", {product, square});
    if (products > 0) Accumulate("product", product);
    status_.Update(builder.status());
  }

  void Sum(int a, int b) {
    GraphBuilder builder(partition_.end);
    builder.set_phase(Phase::kUpdate);
    const ValueId sum = builder.WeftOp("AllReduce", {*partition_.end.FindValue("gradient/sum")},
                                       {{"axis", std::string("data")},
                                        {"group", std::vector<int64_t>{a, b}},
                                        {"algorithm", std::string("auto")}});
    status_.Update(builder.status());
    if (sum.valid()) partition_.end.AddOutput(sum);
  }

  absl::StatusOr<Partition> Finish() {
    WEFT_RETURN_IF_ERROR(Annotate(status_, "building what calibrates contention"));
    return std::move(partition_);
  }

 private:
  ValueId Zeros(Graph& graph, const Shape& shape) {
    VariableShard shard;
    shard.name = absl::StrCat("calibrate", shape.ToString());
    shard.dtype = DType::kFloat32;
    shard.global_shape = shard.local_shape = shape;
    shard.is_primary = true;
    partition_.variables.push_back(shard);
    return graph.AddVariable(shard.name, {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(),
                             /*trainable=*/false);
  }

  // Gives the end graph the value under the name NAME/sum.
  void Accumulate(const std::string& name, ValueId value) {
    if (!value.valid()) return;
    Graph& micro = partition_.micro.front();
    micro.RenameValue(value, name);
    micro.AddOutput(value);
    const std::string sum = absl::StrCat(name, "/sum");
    partition_.end.AddInput(sum, micro.value(value).type);
    Accumulation accumulation;
    accumulation.micro_output = name;
    accumulation.blocks.push_back({sum, 0, 1});
    partition_.accumulations.push_back(std::move(accumulation));
  }

  Partition partition_;
  absl::Status status_;
};

absl::StatusOr<ProbeProgram> Program(const std::string& name, int size, int a, int b, int products,
                                     int64_t elements, bool sums) {
  ProbeProgram program{name, {}};
  for (int rank = 0; rank < size; ++rank) {
    const bool is_member = rank == a || rank == b;
    MemberProgram part(size, rank, is_member ? products : 0, elements);
    if (is_member && sums) part.Sum(a, b);
    WEFT_ASSIGN_OR_RETURN(Partition partition, part.Finish());
    program.partitions.push_back(std::move(partition));
  }
  return program;
}

// As many as take a little longer than the sum.
int ProductsBeside(double sum_seconds, const DeviceProfile& device) {
  const double flops = 2.0 * kSide * kSide * kSide;
  const auto curve = device.contraction.find(DType::kFloat32);
  const double rate = curve == device.contraction.end() ? 0 : curve->second.At(flops);
  if (!(rate > 0)) return 1;
  return static_cast<int>(
      std::clamp(std::ceil(kProductsPerSum * sum_seconds * rate / flops), 1.0, kMaxProducts));
}

}  // namespace

absl::StatusOr<double> ProbeContention(ProbeSession& session, int a, int b,
                                       const DeviceProfile& device,
                                       double exchange_bytes_per_second, double seconds) {
  const auto elements = static_cast<int64_t>(std::clamp(kSumSeconds * exchange_bytes_per_second / 4,
                                                        static_cast<double>(kMinElements),
                                                        static_cast<double>(kSummedElements)));
  const auto measure = [&](const std::string& name, int products,
                           bool sums) -> absl::StatusOr<double> {
    std::vector<ProbeProgram> programs(1);
    WEFT_ASSIGN_OR_RETURN(programs[0],
                          Program(name, session.size(), a, b, products, elements, sums));
    WEFT_RETURN_IF_ERROR(session.Begin(programs, "", {}));
    WEFT_ASSIGN_OR_RETURN(const std::vector<ProbeTimes> times,
                          session.Measure(name, seconds / 3, {}));
    return std::max(times[a].step_seconds, times[b].step_seconds);
  };
  WEFT_ASSIGN_OR_RETURN(const double sum, measure(kSum, 0, true));
  const int products = ProductsBeside(sum, device);
  WEFT_ASSIGN_OR_RETURN(const double computing, measure(kProducts, products, false));
  WEFT_ASSIGN_OR_RETURN(const double both, measure(kBoth, products, true));
  const double overlap = std::min(sum, computing);
  return std::clamp((both - std::max(sum, computing)) / std::max(overlap, 1e-9), 0.0, 1.0);
}

}  // namespace weft
