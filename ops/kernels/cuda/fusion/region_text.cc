#include "ops/kernels/cuda/fusion/region_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ops/kernels/cuda/blocks/broadcast_plan.h"
#include "ops/kernels/cuda/fusion/generated_arguments.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "ops/kernels/cuda/fusion/region_ops.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

constexpr int kRegionThreads = 256;
// As many as fill the largest cards a few times over; longer tensors make the threads walk.
constexpr int64_t kRegionBlocks = 5120;
// Longer rows are folded by a block each.
constexpr int64_t kWarpRow = 1024;

constexpr char kIncludes[] = R"(
#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/elementwise/activation_ops.h"
#include "ops/kernels/cuda/elementwise/binary_ops.h"
#include "ops/kernels/cuda/elementwise/cast_ops.h"
#include "ops/kernels/cuda/elementwise/power_ops.h"
#include "ops/kernels/cuda/elementwise/unary_ops.h"
#include "ops/kernels/cuda/fusion/generated_arguments.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
)";

// The includes lose the line before them, in which a reader of sources would take them for its own.
std::string Includes() { return std::string(kIncludes).substr(1); }

std::string Number(const char* name, int i) { return absl::StrCat(name, i); }

int BytesOf(DType dtype) { return DTypeBits(dtype) / 8; }

// An operand or result of the region as memory.
struct RegionMemory {
  DType dtype = DType::kInvalid;
  // By axis of the plan, in elements.
  std::vector<int64_t> strides;
  bool is_dense = true;  // its element i is at the place i
  bool repeats() const { return strides[0] == 0; }
};

class RegionWriter {
 public:
  explicit RegionWriter(const Graph& body) : body_(body) {}

  absl::StatusOr<RegionText> Write() {
    WEFT_RETURN_IF_ERROR(ReadRegion());
    PlanAccess();
    WEFT_RETURN_IF_ERROR(WriteFormula());
    RegionText result;
    result.width = width_;
    result.text = absl::StrCat(Includes(), "\nnamespace weft::cuda {\n\n", Body(result.grid),
                               "\n}  // namespace weft::cuda\n", Entry());
    return result;
  }

 private:
  absl::Status Refused(const std::string& what) const {
    return absl::UnimplementedError(
        absl::StrCat("no kernel can be generated for the region of '", body_.name, "': ", what));
  }

  Shape ShapeOf(ValueId value) const { return *body_.value(value).type.shape.ToConcrete(); }
  DType TypeOf(ValueId value) const { return body_.value(value).type.dtype; }

  absl::Status ReadRegion() {
    if (body_.inputs().size() > kMaxRegionInputs || body_.outputs().size() > kMaxRegionOutputs) {
      return Refused(absl::StrCat(body_.inputs().size(), " inputs and ", body_.outputs().size(),
                                  " outputs are too many"));
    }
    WEFT_ASSIGN_OR_RETURN(order_, body_.TopologicalOrder());
    if (order_.empty()) return Refused("it has no nodes");
    for (const NodeId id : order_) {
      const Node& node = body_.node(id);
      for (const std::vector<ValueId>* const values : {&node.inputs, &node.outputs}) {
        for (const ValueId value : *values) {
          if (value.valid() && !body_.value(value).type.shape.ToConcrete()) {
            return Refused(absl::StrCat("'", node.name, "' has no fixed shape"));
          }
        }
      }
      fold_ = RowFoldOf(body_, node);
      space_ = ShapeOf(fold_ ? node.inputs[0] : node.outputs[0]);
      if (!fold_) continue;
      if (id != order_.back()) return Refused(absl::StrCat("'", node.name, "' is not its end"));
      folded_ = node.outputs[0];
    }
    return absl::OkStatus();
  }

  void PlanAccess() {
    std::vector<Shape> shapes;
    for (const ValueId input : body_.inputs()) shapes.push_back(ShapeOf(input));
    const BroadcastPlan plan = BroadcastPlan::Make(space_, shapes);
    count_ = plan.elements;
    for (const BroadcastPlan::Axis& axis : plan.axes) sizes_.push_back(axis.size);
    int widest = 1;
    for (size_t k = 0; k < body_.inputs().size(); ++k) {
      RegionMemory& memory = inputs_.emplace_back();
      memory.dtype = TypeOf(body_.inputs()[k]);
      int64_t dense = 1;
      for (const BroadcastPlan::Axis& axis : plan.axes) {
        memory.strides.push_back(axis.strides[k]);
        memory.is_dense &= axis.size == 1 || axis.strides[k] == dense;
        dense *= axis.size;
      }
      widest = std::max(widest, BytesOf(memory.dtype));
    }
    for (const ValueId output : body_.outputs()) widest = std::max(widest, BytesOf(TypeOf(output)));
    width_ = widest >= 8 ? 1 : 16 / widest;
    // On a single axis, the elements that packets leave come at the end.
    const bool rows_fit = fold_ ? plan.HasPackets(width_) && fold_->columns % width_ == 0
                                : plan.HasPackets(width_) || sizes_.size() == 1;
    const bool has_packets = rows_fit && count_ >= width_;
    if (!has_packets) width_ = 1;
    index_ = count_ < kPieceLimit ? "uint32_t" : "int64_t";
  }

  // ---- One element: what the nodes compute.

  // The statements of the nodes, which read e.x0 and so on and write e.y0 and so on.
  absl::Status WriteFormula() {
    std::map<ValueId, std::string> names;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const std::string name = Number("v", static_cast<int>(k));
      names[body_.inputs()[k]] = name;
      absl::StrAppend(&formula_, "    const auto ", name, " = Widen<",
                      ElementText(inputs_[k].dtype), ">(e.x", k, ");\n");
    }
    int number = static_cast<int>(inputs_.size());
    for (const NodeId id : order_) {
      const Node& node = body_.node(id);
      std::vector<std::string> operands;
      for (const ValueId input : node.inputs) {
        WEFT_ASSIGN_OR_RETURN(operands.emplace_back(), OperandText(node, input, names));
      }
      if (node.outputs[0] == folded_) {
        absl::StrAppend(&formula_, "    e.folded = ", operands[0], ";\n");
        continue;
      }
      const std::optional<std::string> expression = ExpressionOf(body_, node, operands);
      const char* const type = ElementText(TypeOf(node.outputs[0]));
      if (!expression || type == nullptr) {
        return Refused(absl::StrCat("operator ", node.op, " of '", node.name, "' is not known"));
      }
      const std::string name = Number("v", number++);
      names[node.outputs[0]] = name;
      absl::StrAppend(&formula_, "    const auto ", name, " = Widen<", type, ">(Narrow<", type,
                      ">(", *expression, "));\n");
    }
    for (size_t k = 0; k < body_.outputs().size(); ++k) {
      const ValueId output = body_.outputs()[k];
      if (output == folded_) continue;
      absl::StrAppend(&formula_, "    e.y", k, " = Narrow<", ElementText(TypeOf(output)), ">(",
                      names.at(output), ");\n");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> OperandText(const Node& node, ValueId input,
                                          const std::map<ValueId, std::string>& names) const {
    if (!input.valid()) return std::string();
    const auto known = names.find(input);
    if (known != names.end()) return known->second;
    const ValueDef& value = body_.value(input);
    if (value.source != ValueSource::kConstant) {
      return Refused(absl::StrCat("'", node.name, "' reads what is not computed before"));
    }
    // Axes of a reduction, which RowFoldOf has read.
    if (node.outputs[0] == folded_) return std::string();
    const std::optional<double> number = NumberOf(value.constant);
    if (!number) {
      return Refused(absl::StrCat("constant '", value.name, "' of '", node.name,
                                  "' is no number that a text can have"));
    }
    return LiteralText(value.type.dtype, *number);
  }

  // The one element of a constant, if it is exact in double and finite.
  static std::optional<double> NumberOf(const Tensor& constant) {
    if (constant.num_elements() != 1 || ElementText(constant.dtype()) == nullptr) {
      return std::nullopt;
    }
    const absl::StatusOr<Tensor> number = CastTensor(constant, DType::kFloat64);
    if (!number.ok()) return std::nullopt;
    const double value = number->data<double>()[0];
    const bool is_exact = constant.dtype() != DType::kInt64 || std::abs(value) < 0x1p53;
    if (!std::isfinite(value) || !is_exact) return std::nullopt;
    return value;
  }

  std::string ElementStruct() const {
    std::string text = "  struct Element {\n";
    for (size_t k = 0; k < inputs_.size(); ++k) {
      absl::StrAppend(&text, "    ", ElementText(inputs_[k].dtype), " x", k, ";\n");
    }
    for (size_t k = 0; k < body_.outputs().size(); ++k) {
      if (body_.outputs()[k] == folded_) continue;
      absl::StrAppend(&text, "    ", ElementText(TypeOf(body_.outputs()[k])), " y", k, ";\n");
    }
    if (fold_) absl::StrAppend(&text, "    ", FoldType(), " folded;\n");
    return absl::StrCat(text, "  };\n  WEFT_GPU static void Compute(Element& e) {\n", formula_,
                        "  }\n");
  }

  const char* FoldType() const { return ComputeText(TypeOf(body_.node(order_.back()).inputs[0])); }

  // ---- Memory.

  std::string Pointers() const {
    std::string text;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      absl::StrAppend(&text, "    const auto x", k, " = gpu.Global(static_cast<const ",
                      ElementText(inputs_[k].dtype), "*>(arguments.x[", k, "]));\n");
    }
    for (size_t k = 0; k < body_.outputs().size(); ++k) {
      absl::StrAppend(&text, "    const auto y", k, " = gpu.Global(static_cast<",
                      ElementText(TypeOf(body_.outputs()[k])), "*>(arguments.y[", k, "]));\n");
    }
    return text;
  }

  // The coordinates of element `i`, as far as an operand needs them, and where operands have it.
  std::string Offsets(const std::string& indent) const {
    std::string text;
    const bool needs = std::any_of(inputs_.begin(), inputs_.end(),
                                   [](const RegionMemory& memory) { return !memory.is_dense; });
    if (!needs) return text;
    std::string rest = "i";
    for (size_t d = 0; d + 1 < sizes_.size(); ++d) {
      absl::StrAppend(&text, indent, "[[maybe_unused]] const Index c", d, " = ", rest, " % ",
                      sizes_[d], ";\n");
      absl::StrAppend(&text, indent, "const Index r", d, " = ", rest, " / ", sizes_[d], ";\n");
      rest = absl::StrCat("r", d);
    }
    absl::StrAppend(&text, indent, "[[maybe_unused]] const Index c", sizes_.size() - 1, " = ", rest,
                    ";\n");
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (inputs_[k].is_dense) continue;
      absl::StrAppend(&text, indent, "const Index o", k, " = 0");
      for (size_t d = 0; d < sizes_.size(); ++d) {
        if (inputs_[k].strides[d] != 0) {
          absl::StrAppend(&text, " + c", d, " * ", inputs_[k].strides[d]);
        }
      }
      absl::StrAppend(&text, ";\n");
    }
    return text;
  }

  std::string OffsetOf(size_t k) const {
    return inputs_[k].is_dense ? "i" : Number("o", static_cast<int>(k));
  }

  // Reads, computes and writes the elements from `i` on. `fold`: a statement for each element.
  std::string Step(int width, const std::string& indent, const std::string& fold) const {
    std::string text = Offsets(indent);
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const bool is_packet = width > 1 && !inputs_[k].repeats();
      const char* const type = ElementText(inputs_[k].dtype);
      absl::StrAppend(&text, indent,
                      is_packet ? "const auto a" : absl::StrCat("const ", type, " a"), k, " = ");
      if (is_packet) {
        absl::StrAppend(&text, "gpu.template Load<", width, ">(x", k, ", ", OffsetOf(k), ");\n");
      } else {
        absl::StrAppend(&text, "x", k, "[", OffsetOf(k), "];\n");
      }
    }
    const auto for_outputs = [&](const auto& append) {
      for (size_t k = 0; k < body_.outputs().size(); ++k) {
        if (body_.outputs()[k] != folded_) append(k, ElementText(TypeOf(body_.outputs()[k])));
      }
    };
    if (width > 1) {
      for_outputs([&](size_t k, const char* type) {
        absl::StrAppend(&text, indent, "Packet<", type, ", ", width, "> b", k, ";\n");
      });
      absl::StrAppend(&text, indent, "WEFT_UNROLL\n", indent, "for (int v = 0; v < ", width,
                      "; ++v) {\n");
    } else {
      absl::StrAppend(&text, indent, "{\n");
    }
    const std::string inner = indent + "  ";
    absl::StrAppend(&text, inner, "Element e;\n");
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const bool is_packet = width > 1 && !inputs_[k].repeats();
      absl::StrAppend(&text, inner, "e.x", k, " = a", k, is_packet ? ".values[v];\n" : ";\n");
    }
    absl::StrAppend(&text, inner, "Compute(e);\n");
    for_outputs([&](size_t k, const char*) {
      absl::StrAppend(&text, inner,
                      width > 1 ? absl::StrCat("b", k, ".values[v]") : absl::StrCat("y", k, "[i]"),
                      " = e.y", k, ";\n");
    });
    if (!fold.empty()) absl::StrAppend(&text, inner, fold, "\n");
    absl::StrAppend(&text, indent, "}\n");
    if (width > 1) {
      for_outputs([&](size_t k, const char*) {
        absl::StrAppend(&text, indent, "gpu.Store(y", k, ", i, b", k, ");\n");
      });
    }
    return text;
  }

  // ---- The body.

  std::string Body(LaunchGrid& grid) const {
    grid.threads = kRegionThreads;
    return absl::StrCat("struct GeneratedBody {\n  using Index = ", index_, ";\n", ElementStruct(),
                        "\n  GeneratedArguments arguments;\n\n",
                        "  template <class Gpu>\n  WEFT_GPU void operator()(Gpu& gpu) const {\n",
                        Pointers(), fold_ ? Rows(grid) : Elements(grid), "  }\n};\n");
  }

  std::string Elements(LaunchGrid& grid) const {
    const int64_t packets = width_ > 1 ? count_ / width_ : 0;
    const int64_t first = packets * width_;
    const int64_t steps = packets > 0 ? packets : count_;
    grid.blocks = Blocks(steps, kRegionThreads, kRegionBlocks);
    std::string text =
        "    const Index first = static_cast<Index>(gpu.index());\n"
        "    const Index step = static_cast<Index>(gpu.stride());\n";
    if (packets > 0) {
      absl::StrAppend(&text, "    for (Index p = first; p < ", packets, "; p += step) {\n",
                      "      const Index i = p * ", width_, ";\n", Step(width_, "      ", ""),
                      "    }\n");
    }
    if (first < count_) {
      absl::StrAppend(&text, "    for (Index i = ", first, " + first; i < ", count_,
                      "; i += step) {\n", Step(1, "      ", ""), "    }\n");
    }
    return text;
  }

  std::string Rows(LaunchGrid& grid) const {
    const bool by_warp = fold_->columns <= kWarpRow;
    const int64_t rows_at_once = by_warp ? kRegionThreads / 32 : 1;
    grid.blocks = std::min((fold_->rows + rows_at_once - 1) / rows_at_once, int64_t{1} << 20);
    const bool is_sum = fold_->fold != RegionFold::kLargest;
    const std::string type = is_sum ? "double" : FoldType();
    const std::string neutral = is_sum ? "0" : absl::StrCat("kLowEnd<", type, ">");
    const std::string combine = is_sum ? "Plus()" : "Larger()";
    // Neighbours are added in their own type, and these sums in double.
    const std::string fold =
        is_sum ? "near = Plus()(near, e.folded);" : "total = Larger()(total, e.folded);";
    std::string text = absl::StrCat(
        "    for (int64_t row = gpu.block() * ", rows_at_once, by_warp ? " + gpu.warp()" : "",
        "; row < ", fold_->rows, "; row += gpu.blocks() * ", rows_at_once, ") {\n      ", type,
        " total = ", neutral, ";\n      for (int64_t c = ", by_warp ? "gpu.lane()" : "gpu.thread()",
        "; c < ", fold_->columns / width_, "; c += ", by_warp ? 32 : kRegionThreads,
        ") {\n        const Index i = static_cast<Index>(row * ", fold_->columns, " + c * ", width_,
        ");\n");
    if (is_sum) absl::StrAppend(&text, "        ", FoldType(), " near = 0;\n");
    absl::StrAppend(&text, Step(width_, "        ", fold));
    if (is_sum) absl::StrAppend(&text, "        total += near;\n");
    absl::StrAppend(&text, "      }\n      total = ",
                    by_warp ? absl::StrCat("WarpReduce(gpu, total, ", combine, ")")
                            : absl::StrCat("BlockReduce<0>(gpu, total, static_cast<", type, ">(",
                                           neutral, "), ", combine, ")"),
                    ";\n");
    for (size_t k = 0; k < body_.outputs().size(); ++k) {
      if (body_.outputs()[k] != folded_) continue;
      const std::string value =
          fold_->fold == RegionFold::kMean
              ? absl::StrCat("total / ",
                             LiteralText(DType::kFloat64, static_cast<double>(fold_->columns)))
              : "total";
      absl::StrAppend(&text, "      if (", by_warp ? "gpu.lane()" : "gpu.thread()", " == 0) y", k,
                      "[row] = Narrow<", ElementText(TypeOf(folded_)), ">(static_cast<", FoldType(),
                      ">(", value, "));\n");
    }
    return absl::StrCat(text, "    }\n");
  }

  static std::string Entry() {
    return absl::StrReplaceAll(
        R"(
#ifdef __CUDACC__
extern "C" __global__ __launch_bounds__(THREADS) void NAME(
    const __grid_constant__ weft::cuda::GeneratedArguments arguments) {
  weft::cuda::CudaGpu gpu;
  weft::cuda::GeneratedBody{arguments}(gpu);
}
#endif
)",
        {{"THREADS", absl::StrCat(kRegionThreads)}, {"NAME", kGeneratedKernel}});
  }

  const Graph& body_;
  std::vector<NodeId> order_;
  Shape space_;
  std::optional<RowFold> fold_;
  ValueId folded_;
  int64_t count_ = 0;
  std::vector<int64_t> sizes_;  // of the plan's axes, minor first
  std::vector<RegionMemory> inputs_;
  int width_ = 1;
  const char* index_ = "uint32_t";
  std::string formula_;
};

}  // namespace

absl::StatusOr<RegionText> GenerateRegion(const Graph& body) { return RegionWriter(body).Write(); }

}  // namespace weft::cuda
