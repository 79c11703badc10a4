#include "placement/testing/tensor_arithmetic.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "ops/concrete_node.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

void FillSlices(const Graph& graph, const std::vector<ValueId>& values,
                const std::vector<Shape>& shapes, std::vector<OperandSlice>& slices) {
  for (size_t i = 0; i < values.size(); ++i) {
    OperandSlice slice{shapes[i], std::vector<int64_t>(shapes[i].rank(), 0)};
    if (values[i].valid() && graph.value(values[i]).placement.has_value()) {
      slice.global_shape = graph.value(values[i]).placement->global_shape;
      slice.offset = graph.value(values[i]).placement->offset;
    }
    slices.push_back(std::move(slice));
  }
}

}  // namespace

absl::StatusOr<Tensor> AddTensors(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) {
    return absl::InternalError(absl::StrCat("cannot add ", a.ToString(), " and ", b.ToString()));
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<double> sum, ToDoubles(a));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> addend, ToDoubles(b));
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
  return CastTensor(Tensor::Of<double>(a.shape(), sum), a.dtype());
}

absl::StatusOr<Tensor> SumInOrder(const std::vector<Tensor>& terms) {
  Tensor sum = terms.front();
  for (size_t i = 1; i < terms.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(sum, AddTensors(sum, terms[i]));
  }
  return sum;
}

absl::StatusOr<Tensor> SumInTree(const std::vector<Tensor>& terms) {
  if (terms.size() == 1) return terms.front();
  size_t half = 1;
  while (half * 2 < terms.size()) half *= 2;
  const auto middle = terms.begin() + static_cast<std::ptrdiff_t>(half);
  WEFT_ASSIGN_OR_RETURN(const Tensor left, SumInTree({terms.begin(), middle}));
  WEFT_ASSIGN_OR_RETURN(const Tensor right, SumInTree({middle, terms.end()}));
  return AddTensors(left, right);
}

absl::StatusOr<Tensor> JoinShards(const std::vector<Tensor>& shards, const AxisSharding& sharding) {
  Shape whole = shards.front().shape();
  int64_t rows = 0;
  for (const Tensor& shard : shards) rows += shard.shape().dim(sharding.axis);
  whole.set_dim(sharding.axis, rows);
  WEFT_ASSIGN_OR_RETURN(Tensor joined, Tensor::Allocate(shards.front().dtype(), whole));
  const int64_t row =
      whole.ProductOf(sharding.axis + 1, whole.rank()) * DTypeBytes(joined.dtype(), 1);
  const int64_t pieces = whole.ProductOf(0, sharding.axis) * sharding.blocks;
  char* to = static_cast<char*>(joined.raw_data());
  for (int64_t piece = 0; piece < pieces; ++piece) {
    for (const Tensor& shard : shards) {
      const int64_t bytes = shard.shape().dim(sharding.axis) / sharding.blocks * row;
      if (bytes == 0) continue;
      std::memcpy(to, static_cast<const char*>(shard.raw_data()) + piece * bytes, bytes);
      to += bytes;
    }
  }
  return joined;
}

absl::StatusOr<std::vector<Tensor>> RunNode(const Graph& graph, const Node& node,
                                            std::vector<Tensor> inputs,
                                            const KernelRegistry* kernels) {
  NodeRunOptions options;
  const bool has_reference =
      KernelRegistry::Reference().Find(node.domain, node.op, DeviceKind::kCpu) != nullptr;
  options.registry = has_reference ? &KernelRegistry::Reference() : &KernelRegistry::Global();
  if (kernels != nullptr) options.registry = kernels;
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.shape());
  FillSlices(graph, node.inputs, shapes, options.input_slices);
  shapes.clear();
  for (const ValueId output : node.outputs) {
    shapes.push_back(output.valid() ? graph.value(output).type.shape.ToConcrete().value_or(Shape())
                                    : Shape());
  }
  FillSlices(graph, node.outputs, shapes, options.output_slices);
  WEFT_ASSIGN_OR_RETURN(const ConcreteNode concrete,
                        ConcreteNode::Create(node, std::move(inputs), std::move(options)));
  return concrete.Run();
}

}  // namespace weft::testing
