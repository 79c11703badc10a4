#include "tools/models/op_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "ops/custom/custom_op.h"
#include "ops/custom/sharding_notation.h"
#include "ops/testing/gradient_rule.h"
#include "ops/testing/op_case.h"
#include "ops/testing/sharding_rule.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"
#include "tensor/cpu_device.h"

namespace weft {
namespace {

using testing::OpCase;

constexpr size_t kGuard = 256;  // bytes on each side of an output; keeps its alignment
constexpr unsigned char kFills[] = {0xA5, 0x5A};

// Runs each loop in pieces, one after the other: cut at random places, in a random order. Looks at
// what each piece writes.
class ShuffledLoops final : public LoopRunner {
 public:
  ShuffledLoops(uint64_t seed, const std::vector<std::span<std::byte>>& outputs)
      : random_(seed), outputs_(outputs) {}

  void Run(int64_t items, double, absl::FunctionRef<void(int64_t, int64_t)> body) override {
    std::vector<int64_t> borders = {0, items};
    for (int k = 0; k < 6 && items > 1; ++k) {
      borders.push_back(1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(items - 1)));
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    std::vector<int> order;
    for (size_t k = 0; k + 1 < borders.size(); ++k) order.push_back(static_cast<int>(k));
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::vector<int>> writers;
    for (const auto& output : outputs_) writers.emplace_back(output.size(), -1);
    for (const int piece : order) {
      const std::vector<std::vector<std::byte>> before = Copies();
      body(borders[piece], borders[piece + 1]);
      for (size_t i = 0; i < outputs_.size(); ++i)
        NoteWrites(i, before[i], piece, borders, writers);
    }
    ++loops_;
  }

  int loops() const { return loops_; }
  const absl::Status& status() const { return status_; }

 private:
  std::vector<std::vector<std::byte>> Copies() const {
    std::vector<std::vector<std::byte>> copies;
    for (const auto& output : outputs_) copies.emplace_back(output.begin(), output.end());
    return copies;
  }

  void NoteWrites(size_t output, const std::vector<std::byte>& before, int piece,
                  const std::vector<int64_t>& borders, std::vector<std::vector<int>>& writers) {
    for (size_t k = 0; k < before.size(); ++k) {
      if (before[k] == outputs_[output][k]) continue;
      int& writer = writers[output][k];
      if (writer >= 0 && writer != piece && status_.ok()) {
        status_ = absl::InternalError(
            absl::StrCat("a race: iterations ", borders[writer], " to ", borders[writer + 1] - 1,
                         " of a parallel loop and iterations ", borders[piece], " to ",
                         borders[piece + 1] - 1, " both write byte ", k, " of output ", output));
      }
      writer = piece;
    }
  }

  std::mt19937_64 random_;
  const std::vector<std::span<std::byte>>& outputs_;
  int loops_ = 0;
  absl::Status status_;
};

class WholeLoops final : public LoopRunner {
 public:
  void Run(int64_t items, double, absl::FunctionRef<void(int64_t, int64_t)> body) override {
    if (items > 0) body(0, items);
  }
};

// Output memory between guards, filled with one byte.
class GuardedOutputs {
 public:
  static absl::StatusOr<GuardedOutputs> Make(const ConcreteNode& node, unsigned char fill) {
    GuardedOutputs outputs(fill);
    for (int i = 0; i < node.num_outputs(); ++i) {
      const size_t bytes = node.HasOutput(i)
                               ? static_cast<size_t>(DTypeBytes(node.OutputDType(i),
                                                                node.OutputShape(i).num_elements()))
                               : 0;
      WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory,
                            CpuDevice().Allocate(bytes + 2 * kGuard));
      std::memset(memory->data(), fill, bytes + 2 * kGuard);
      auto* const begin = static_cast<std::byte*>(memory->data()) + kGuard;
      outputs.pointers_.push_back(node.HasOutput(i) ? begin : nullptr);
      outputs.spans_.emplace_back(begin, bytes);
      outputs.memory_.push_back(std::move(memory));
    }
    return outputs;
  }

  void* const* pointers() const { return pointers_.data(); }
  const std::vector<std::span<std::byte>>& spans() const { return spans_; }

  absl::Status CheckGuards() const {
    for (size_t i = 0; i < spans_.size(); ++i) {
      for (size_t k = 1; k <= kGuard; ++k) {
        const bool before = *(spans_[i].data() - k) != std::byte{fill_};
        const bool after = *(spans_[i].data() + spans_[i].size() + k - 1) != std::byte{fill_};
        if (!before && !after) continue;
        return absl::InternalError(
            absl::StrCat("the kernel writes beside output ", i, ": ", k,
                         before ? " bytes before its first element" : " bytes behind its last one",
                         "; the shape function and the kernel do not mean the same shape"));
      }
    }
    return absl::OkStatus();
  }

 private:
  explicit GuardedOutputs(unsigned char fill) : fill_(fill) {}
  unsigned char fill_;
  std::vector<std::shared_ptr<Buffer>> memory_;
  std::vector<void*> pointers_;
  std::vector<std::span<std::byte>> spans_;
};

// The check of one op.
class OpCheck {
 public:
  OpCheck(const WeftOpDescriptor& op, const OpCheckOptions& options)
      : op_(op), options_(options), random_(options.seed) {}

  std::vector<OpCheckResult> Run() {
    const absl::Status made = MakeCases();
    if (!made.ok()) return {{"shapes", "no inputs to try", false, made}};
    std::vector<OpCheckResult> results;
    const auto check = [&](const char* name, auto method) {
      OpCheckResult result{name, "", false, absl::OkStatus()};
      for (const OpCase& op_case : cases_) {
        result.status = (this->*method)(op_case, result);
        if (result.skipped) break;
        if (!result.status.ok()) {
          result.status = absl::Status(
              result.status.code(),
              absl::StrCat(op_case.ToString(), ": ", std::string(result.status.message())));
          break;
        }
      }
      results.push_back(std::move(result));
    };
    check("shapes", &OpCheck::CheckShapes);
    check("memory", &OpCheck::CheckMemory);
    // What follows runs the kernel on ordinary memory.
    if (!results.back().status.ok()) return results;
    check("loops", &OpCheck::CheckLoops);
    check("gradient", &OpCheck::CheckGradient);
    check("sharding", &OpCheck::CheckSharding);
    return results;
  }

 private:
  // ---- Cases.

  static bool Allows(const WeftOperand& operand, DType dtype) {
    if (operand.num_dtypes == 0) return true;
    const int32_t* const end = operand.dtypes + operand.num_dtypes;
    return std::find(operand.dtypes, end, static_cast<int32_t>(dtype)) != end;
  }

  bool IsFloating(const WeftOperand& operand) const {
    return Allows(operand, DType::kFloat32) || Allows(operand, DType::kFloat64);
  }

  bool AllAllow(DType dtype) const {
    for (int32_t i = 0; i < op_.num_inputs; ++i) {
      if (IsFloating(op_.inputs[i]) && !Allows(op_.inputs[i], dtype)) return false;
    }
    return true;
  }

  Tensor RandomInput(const WeftOperand& operand, const Shape& shape, DType floating) {
    if (IsFloating(operand)) {
      return testing::RandomTensor(shape, random_(), -1, 1, floating);
    }
    return testing::RandomTensor(shape, random_(), 0, 3, static_cast<DType>(operand.dtypes[0]));
  }

  absl::StatusOr<std::vector<Shape>> RandomShapes(int leading) {
    if (!options_.input_shapes.empty()) return options_.input_shapes;
    if (op_.sharding == nullptr) {
      return absl::InvalidArgumentError(
          "the op has no sharding notation to make inputs from: give their shapes (--shapes "
          "2x3,3)");
    }
    WEFT_ASSIGN_OR_RETURN(const ShardingNotation notation, ShardingNotation::Parse(op_.sharding));
    std::map<std::string, int64_t> sizes;
    const auto size = [&](const std::string& name) {
      static constexpr int64_t kSizes[] = {2, 3, 4, 5, 6, 7, 11};
      return sizes.try_emplace(name, kSizes[random_() % std::size(kSizes)]).first->second;
    };
    return notation.InputShapes(op_.num_inputs, leading, size);
  }

  absl::Status MakeCases() {
    const DType floating = AllAllow(DType::kFloat32) ? DType::kFloat32 : DType::kFloat64;
    const int cases = options_.input_shapes.empty() ? options_.cases : 1;
    for (int k = 0; k < cases; ++k) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, RandomShapes(k % 3));
      if (static_cast<int>(shapes.size()) > op_.num_inputs) {
        return absl::InvalidArgumentError(
            absl::StrCat(shapes.size(), " shapes for ", op_.num_inputs, " inputs"));
      }
      OpCase op_case{op_.domain, op_.name, options_.attributes, {}, {}};
      op_case.outputs.assign(static_cast<size_t>(op_.num_outputs), true);
      for (size_t i = 0; i < shapes.size(); ++i) {
        op_case.inputs.push_back(RandomInput(op_.inputs[i], shapes[i], floating));
      }
      cases_.push_back(std::move(op_case));
    }
    return absl::OkStatus();
  }

  // ---- Shapes.

  // The types of the outputs where each size of an input is a symbol. Equal sizes share one, since
  // the op may ask for equal ones.
  absl::StatusOr<std::vector<ValueType>> InferSymbols(const OpCase& op_case,
                                                      std::map<std::string, int64_t>& sizes) const {
    const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(op_case);
    Graph& graph = *single.graph;
    for (size_t i = 0; i < op_case.inputs.size(); ++i) {
      std::vector<Dim> dims;
      for (const int64_t size : op_case.inputs[i].shape().dims()) {
        const std::string symbol = absl::StrCat("size", size);
        sizes[symbol] = size;
        dims.push_back(Dim::Symbol(symbol));
      }
      graph.value(graph.inputs()[i]).type.shape = SymbolicShape(std::move(dims));
    }
    WEFT_RETURN_IF_ERROR(InferShapes(graph));
    std::vector<ValueType> types;
    for (const ValueId id : graph.node(single.node).outputs) {
      types.push_back(graph.value(id).type);
    }
    return types;
  }

  absl::Status CheckShapes(const OpCase& op_case, OpCheckResult& result) {
    result.what = "the shape function on sizes and on symbols";
    const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(op_case);
    WEFT_ASSIGN_OR_RETURN(const std::vector<ValueType> exact,
                          InferConcreteOutputs(single.graph->node(single.node), op_case.inputs));
    std::map<std::string, int64_t> sizes;
    WEFT_ASSIGN_OR_RETURN(const std::vector<ValueType> symbolic, InferSymbols(op_case, sizes));
    for (size_t i = 0; i < exact.size(); ++i) {
      const SymbolicShape bound = symbolic[i].shape.Bind(sizes);
      const bool same_rank = !bound.has_rank() || bound.rank() == exact[i].shape.rank();
      bool same = same_rank && symbolic[i].dtype == exact[i].dtype;
      for (int axis = 0; same && bound.has_rank() && axis < bound.rank(); ++axis) {
        const Dim& dim = bound.dim(axis);
        same = !dim.is_known() || dim == exact[i].shape.dim(axis);
      }
      if (same) continue;
      return absl::InternalError(absl::StrCat("output ", i, " is ", exact[i].ToString(),
                                              ", but with symbols for sizes it is ",
                                              symbolic[i].ToString()));
    }
    return absl::OkStatus();
  }

  // ---- Memory and loops.

  absl::Status RunOn(const ConcreteNode& node, LoopRunner& loops,
                     const GuardedOutputs& outputs) const {
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                          PrepareCustomKernel(op_, op_.run_cpu, node, &loops));
    std::vector<const void*> inputs;
    for (const Tensor& input : node.inputs()) {
      inputs.push_back(input.valid() ? input.raw_data() : nullptr);
    }
    KernelContext context;
    context.inputs = inputs.data();
    context.outputs = outputs.pointers();
    return kernel->Run(context);
  }

  absl::Status CheckMemory(const OpCase& op_case, OpCheckResult& result) {
    if (op_.run_cpu == nullptr) return Skip(result, "there is no kernel for the CPU");
    result.what = "guarded outputs, twice";
    const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(op_case);
    WEFT_ASSIGN_OR_RETURN(const ConcreteNode node,
                          ConcreteNode::Create(single.graph->node(single.node), op_case.inputs));
    WholeLoops loops;
    WEFT_ASSIGN_OR_RETURN(const GuardedOutputs first, GuardedOutputs::Make(node, kFills[0]));
    WEFT_RETURN_IF_ERROR(RunOn(node, loops, first));
    WEFT_RETURN_IF_ERROR(first.CheckGuards());
    WEFT_ASSIGN_OR_RETURN(const GuardedOutputs second, GuardedOutputs::Make(node, kFills[1]));
    WEFT_RETURN_IF_ERROR(RunOn(node, loops, second));
    WEFT_RETURN_IF_ERROR(second.CheckGuards());
    for (int i = 0; i < node.num_outputs(); ++i) {
      WEFT_RETURN_IF_ERROR(CompareRuns(node, i, first.spans()[i], second.spans()[i]));
    }
    return absl::OkStatus();
  }

  static absl::Status CompareRuns(const ConcreteNode& node, int output,
                                  std::span<const std::byte> a, std::span<const std::byte> b) {
    const size_t width = static_cast<size_t>(DTypeBits(node.OutputDType(output))) / 8;
    const auto is_filled = [&](std::span<const std::byte> bytes, size_t at, unsigned char fill) {
      return std::all_of(bytes.begin() + at, bytes.begin() + at + width,
                         [fill](std::byte byte) { return byte == std::byte{fill}; });
    };
    int64_t unwritten = 0;
    for (size_t at = 0; at + width <= a.size(); at += width) {
      if (is_filled(a, at, kFills[0]) && is_filled(b, at, kFills[1])) {
        ++unwritten;
      } else if (std::memcmp(&a[at], &b[at], width) != 0) {
        return absl::InternalError(absl::StrCat(
            "element ", at / width, " of output ", output,
            " differs between two runs on the same inputs: it depends on what the memory held"));
      }
    }
    if (unwritten == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(
        "output ", output, " is ", std::string(DTypeName(node.OutputDType(output))),
        node.OutputShape(output).ToString(), " by the shape function, but the kernel leaves ",
        unwritten, " of its ", node.OutputShape(output).num_elements(), " elements unwritten"));
  }

  absl::Status CheckLoops(const OpCase& op_case, OpCheckResult& result) {
    constexpr int kOrders = 8;
    const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(op_case);
    WEFT_ASSIGN_OR_RETURN(const ConcreteNode node,
                          ConcreteNode::Create(single.graph->node(single.node), op_case.inputs));
    WholeLoops whole;
    WEFT_ASSIGN_OR_RETURN(const GuardedOutputs expected, GuardedOutputs::Make(node, kFills[0]));
    WEFT_RETURN_IF_ERROR(RunOn(node, whole, expected));
    for (int order = 0; order < kOrders; ++order) {
      WEFT_ASSIGN_OR_RETURN(const GuardedOutputs outputs,
                            GuardedOutputs::Make(node, kFills[order % 2]));
      ShuffledLoops loops(random_(), outputs.spans());
      WEFT_RETURN_IF_ERROR(RunOn(node, loops, outputs));
      WEFT_RETURN_IF_ERROR(loops.status());
      loops_simulated_ += loops.loops();
      for (size_t i = 0; i < outputs.spans().size(); ++i) {
        const auto& a = expected.spans()[i];
        const auto& b = outputs.spans()[i];
        if (std::equal(a.begin(), a.end(), b.begin(), b.end())) continue;
        return absl::InternalError(
            absl::StrCat("output ", i,
                         " has other bits when the parallel loop is cut and ordered differently: "
                         "its iterations depend on each other"));
      }
    }
    result.what = loops_simulated_ == 0
                      ? "it has no parallel loop"
                      : absl::StrCat(loops_simulated_, " parallel loops in other orders");
    return absl::OkStatus();
  }

  // ---- Rules.

  static absl::Status Skip(OpCheckResult& result, const char* why) {
    result.what = why;
    result.skipped = true;
    return absl::OkStatus();
  }

  absl::Status CheckGradient(const OpCase& op_case, OpCheckResult& result) {
    if (op_.gradient == nullptr) {
      return Skip(result, op_.not_differentiable != 0 ? "declared as not differentiable"
                                                      : "there is no gradient rule");
    }
    const bool exact = AllAllow(DType::kFloat64);
    result.what = exact ? "against numeric differentiation in float64"
                        : "against numeric differentiation in float32 (within 2 %)";
    const OpCase tried = exact ? testing::InFloat64(op_case) : op_case;
    testing::NumericGradientOptions numeric;
    if (!exact) numeric = {.tolerance = 2e-2, .step = 1e-2};
    const std::vector<int> inputs = testing::DifferentiableInputs(tried);
    WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> gradients,
                          testing::RuleGradients(tried, inputs, KernelRegistry::Global()));
    return testing::CheckAgainstNumericGradients(tried, inputs, gradients, numeric);
  }

  absl::Status CheckSharding(const OpCase& op_case, OpCheckResult& result) {
    if (op_.sharding == nullptr) return Skip(result, "there is no sharding rule");
    result.what = "every split on 2 and 3 shards against the whole";
    const bool exact = AllAllow(DType::kFloat64);
    testing::ShardingRuleOptions rule;
    rule.tolerance = exact ? 1e-12 : 1e-5;
    rule.min_splits = 0;  // a rule of whole dimensions alone is one, too
    return testing::CheckShardingRule(exact ? testing::InFloat64(op_case) : op_case, rule);
  }

  const WeftOpDescriptor& op_;
  const OpCheckOptions& options_;
  std::mt19937_64 random_;
  std::vector<OpCase> cases_;
  int loops_simulated_ = 0;
};

}  // namespace

std::vector<OpCheckResult> CheckCustomOp(const WeftOpDescriptor& op,
                                         const OpCheckOptions& options) {
  return OpCheck(op, options).Run();
}

}  // namespace weft
