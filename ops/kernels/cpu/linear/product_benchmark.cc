// Float32 matrix products by our kernels and by oneDNN, in turn, so that both see the same machine.
// Each line has the best time of either, their ratio (above 1: ours is faster), and the share of
// the peak: of the rate of one thread whose operands lie in the first-level cache. Times are those
// of the clock; with --cpu_time of the processors, which a loaded machine disturbs less.
// ChooseProduct in matrix_product.cc is the rule that was read from this table.
//
//   bazel run //ops/kernels/cpu/linear:product_benchmark -- [--cpu_time] [THREADS] [PART OF A NAME]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ops/concrete_node.h"
#include "ops/kernels/cpu/blocks/matrix_product.h"
#include "ops/kernels/cpu/blocks/product_tiles.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::cpu {
namespace {

using weft::testing::OpCase;
using weft::testing::RandomTensor;

struct ProductShape {
  int64_t m;
  int64_t n;
  int64_t k;
  bool trans_a = false;
  bool trans_b = false;
  bool constant_b = false;
  int64_t batch = 1;

  std::string Name() const {
    return absl::StrCat(batch > 1 ? absl::StrCat(batch, "x") : "", m, "x", k, trans_a ? "T" : "",
                        "*", k, "x", n, trans_b ? "T" : "", constant_b ? " constant" : "");
  }
  double flops() const { return 2.0 * static_cast<double>(batch * m * n) * static_cast<double>(k); }
};

// The node of a product whose B may be a constant, not strict.
class ProductNode final : public PrepareContext {
 public:
  ProductNode(const ConcreteNode& node, int threads, bool constant)
      : node_(node), threads_(threads), constant_(constant) {}
  const Node& node() const override { return node_.node(); }
  const Shape& InputShape(int i) const override { return node_.InputShape(i); }
  const Shape& OutputShape(int i) const override { return node_.OutputShape(i); }
  DType InputDType(int i) const override { return node_.InputDType(i); }
  DType OutputDType(int i) const override { return node_.OutputDType(i); }
  const Tensor* InputValue(int i) const override { return node_.InputValue(i); }
  const OperandSlice& InputSlice(int i) const override { return node_.InputSlice(i); }
  const OperandSlice& OutputSlice(int i) const override { return node_.OutputSlice(i); }
  Device& device() const override { return node_.device(); }
  int threads() const override { return threads_; }
  bool strict() const override { return false; }
  bool InputIsConstant(int i) const override { return constant_ && i == 1; }

 private:
  const ConcreteNode& node_;
  const int threads_;
  const bool constant_;
};

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A prepared product with memory of its own.
class PreparedProduct {
 public:
  PreparedProduct(const PrepareContext& context, const MatrixProduct& product, ProductBy by,
                  const Tensor& a, const Tensor& b)
      : kernel_(*PrepareMatrixProduct(context, product, by)),
        y_(*Tensor::Zeros(DType::kFloat32, context.OutputShape(0))),
        workspace_(*Tensor::Zeros(DType::kUint8,
                                  Shape{static_cast<int64_t>(kernel_->workspace_bytes())})) {
    inputs_[0] = a.raw_data();
    inputs_[1] = b.raw_data();
    output_ = y_.raw_data();
    context_.inputs = inputs_;
    context_.outputs = &output_;
    context_.workspace = workspace_.raw_data();
  }
  // Of so many runs.
  double SecondsOf(int runs, clockid_t clock) {
    const double begin = Seconds(clock);
    for (int i = 0; i < runs; ++i) {
      if (!kernel_->Run(context_).ok()) std::abort();
    }
    return Seconds(clock) - begin;
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  Tensor y_;
  Tensor workspace_;
  const void* inputs_[2];
  void* output_;
  KernelContext context_;
};

// FLOP per second of a tile whose operands are in the first-level cache.
double PeakOfOneThread() {
  const ProductTile tile = TileOfProduct();
  const Tensor a = RandomTensor({256, tile.row_step}, 1);
  const Tensor b = RandomTensor({256, tile.columns}, 2);
  Tensor y = *Tensor::Zeros(DType::kFloat32, {tile.rows, tile.columns});
  BlockProduct block;
  block.rows = tile.rows;
  block.columns = tile.columns;
  block.depth = 256;
  block.a = a.data<float>().data();
  block.b = b.data<float>().data();
  block.b_step = tile.columns;
  block.b_panel_stride = block.depth * tile.columns;
  block.y = y.mutable_data<float>().data();
  block.y_stride = tile.columns;
  constexpr int kRuns = 200;
  double best = 1;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const double begin = Seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < kRuns; ++i) MultiplyBlock(block);
    best = std::min(best, Seconds(CLOCK_THREAD_CPUTIME_ID) - begin);
  }
  return 2.0 * static_cast<double>(tile.rows * tile.columns * block.depth) * kRuns / best;
}

void Compare(const ProductShape& shape, int threads, clockid_t clock, double peak) {
  MatrixProduct product;
  product.m = shape.m;
  product.n = shape.n;
  product.k = shape.k;
  product.trans_a = shape.trans_a;
  product.trans_b = shape.trans_b;
  Shape a = shape.trans_a ? Shape{shape.k, shape.m} : Shape{shape.m, shape.k};
  Shape b = shape.trans_b ? Shape{shape.n, shape.k} : Shape{shape.k, shape.n};
  if (shape.batch > 1) {
    product.a_batch = product.b_batch = Shape{shape.batch};
    a = Shape{shape.batch, a.dim(0), a.dim(1)};
    b = Shape{shape.batch, b.dim(0), b.dim(1)};
  }
  const OpCase op_case{
      .domain = std::string(kWeftDomain),
      .op = "MatMul",
      .attributes = {{"transA", int64_t{shape.trans_a}}, {"transB", int64_t{shape.trans_b}}},
      .inputs = {RandomTensor(a, 1), RandomTensor(b, 2)}};
  const auto single = weft::testing::MakeSingleNodeGraph(op_case);
  const auto node =
      ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, NodeRunOptions());
  if (!node.ok()) std::abort();
  const ProductNode context(*node, threads, shape.constant_b);
  PreparedProduct ours(context, product, ProductBy::kPacked, op_case.inputs[0], op_case.inputs[1]);
  PreparedProduct theirs(context, product, ProductBy::kOnednn, op_case.inputs[0],
                         op_case.inputs[1]);
  constexpr double kSecondsPerTurn = 0.005;
  constexpr int kTurns = 21;
  ours.SecondsOf(1, clock);
  const double first = theirs.SecondsOf(1, clock) + theirs.SecondsOf(1, clock);
  const int runs = std::clamp(static_cast<int>(kSecondsPerTurn / (first / 2 + 1e-9)), 1, 100000);
  double our_best = 1e9, their_best = 1e9;
  for (int turn = 0; turn < kTurns; ++turn) {
    our_best = std::min(our_best, ours.SecondsOf(runs, clock) / runs);
    their_best = std::min(their_best, theirs.SecondsOf(runs, clock) / runs);
  }
  std::printf("%-28s ours %9.2f us %6.1f GFLOP/s %3.0f %%  oneDNN %9.2f us %6.1f GFLOP/s  %.2f\n",
              shape.Name().c_str(), our_best * 1e6, shape.flops() / our_best * 1e-9,
              100 * shape.flops() / our_best / peak, their_best * 1e6,
              shape.flops() / their_best * 1e-9, their_best / our_best);
  std::fflush(stdout);
}

std::vector<ProductShape> Shapes() {
  std::vector<ProductShape> shapes;
  // Forward with weights that change or do not, and both gradients.
  const auto add_layer = [&](int64_t m, int64_t n, int64_t k) {
    shapes.push_back({.m = m, .n = n, .k = k});
    shapes.push_back({.m = m, .n = n, .k = k, .constant_b = true});
    shapes.push_back({.m = m, .n = k, .k = n, .trans_b = true});
    shapes.push_back({.m = k, .n = n, .k = m, .trans_a = true});
  };
  add_layer(128, 3072, 768);
  add_layer(128, 768, 3072);
  add_layer(1024, 1024, 256);
  add_layer(1024, 256, 1024);
  add_layer(1024, 768, 768);
  add_layer(2048, 2048, 2048);
  add_layer(512, 512, 512);
  add_layer(1024, 384, 128);
  add_layer(64, 400, 120);
  add_layer(64, 84, 120);
  add_layer(4096, 64, 10);
  for (const int64_t rows : {1, 4, 8, 16, 32}) add_layer(rows, 768, 768);
  for (const int64_t size : {4, 8, 16, 32, 64, 128, 256}) {
    shapes.push_back({.m = size, .n = size, .k = size});
    if (size <= 64) shapes.push_back({.m = size, .n = size, .k = size, .batch = 64});
  }
  shapes.push_back({.m = 128, .n = 128, .k = 32, .trans_b = true, .batch = 32});
  shapes.push_back({.m = 128, .n = 32, .k = 128, .batch = 32});
  return shapes;
}

int Main(int argc, char** argv) {
  int threads = 1;
  clockid_t clock = CLOCK_MONOTONIC;
  std::string part;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--cpu_time") {
      clock = CLOCK_PROCESS_CPUTIME_ID;
    } else if (std::atoi(argv[i]) > 0 && !absl::StrContains(argument, "x")) {
      threads = std::atoi(argv[i]);
    } else {
      part = argument;
    }
  }
  const double peak = PeakOfOneThread() * (clock == CLOCK_MONOTONIC ? threads : 1);
  std::printf("%d threads, peak %.1f GFLOP/s\n", threads, peak * 1e-9);
  for (const ProductShape& shape : Shapes()) {
    if (absl::StrContains(shape.Name(), part)) Compare(shape, threads, clock, peak);
  }
  return 0;
}

}  // namespace
}  // namespace weft::cpu

int main(int argc, char** argv) { return weft::cpu::Main(argc, argv); }
