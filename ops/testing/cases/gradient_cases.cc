#include "ops/testing/cases/gradient_cases.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/testing/test_tensors.h"

namespace weft::testing {

GradientCase CaseOf(OpCase op_case) {
  const OpSchema* const schema = OpRegistry::Global().Find(op_case.domain, op_case.op);
  GradientCase result;
  result.name = op_case.ToString();
  result.inputs = op_case.inputs;
  if (schema != nullptr) result.constants = schema->value_inputs();
  result.build = [op_case = std::move(op_case)](GraphBuilder& builder,
                                                const std::vector<ValueId>& inputs) {
    std::vector<ValueId> outputs =
        builder.Ops(op_case.domain, op_case.op, inputs, op_case.attributes, op_case.outputs);
    outputs.erase(std::remove(outputs.begin(), outputs.end(), kNoValue), outputs.end());
    return outputs;
  };
  return result;
}

void AddCase(GradientGenerators& generators, const std::string& name,
             std::function<Operands(CaseRandom&)> make) {
  const size_t domain_end = name.find("::");
  const std::string domain = domain_end == std::string::npos ? "" : name.substr(0, domain_end);
  const std::string op = domain_end == std::string::npos ? name : name.substr(domain_end + 2);
  generators[name].push_back([domain, op, make = std::move(make)](CaseRandom& random) {
    Operands operands = make(random);
    return CaseOf({domain, op, std::move(operands.attributes), std::move(operands.inputs),
                   std::move(operands.outputs)});
  });
}

const GradientGenerators& GradientCases() {
  static const auto* const all = [] {
    auto* generators = new GradientGenerators();
    AddElementwiseGradients(*generators);
    AddMovementGradients(*generators);
    AddIndexGradients(*generators);
    AddProductGradients(*generators);
    AddReductionGradients(*generators);
    AddImageGradients(*generators);
    AddNormalizationGradients(*generators);
    AddSignalGradients(*generators);
    AddSequenceGradients(*generators);
    AddFeatureGradients(*generators);
    AddControlFlowGradients(*generators);
    return generators;
  }();
  return *all;
}

Shape SmallShape(CaseRandom& random, int rank) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.AddDim(random.Between(1, 4));
  return shape;
}

Shape BroadcastableShape(CaseRandom& random, const Shape& shape) {
  const int skipped = random.Coin() ? 0 : static_cast<int>(random.Between(0, shape.rank()));
  Shape small;
  for (int axis = skipped; axis < shape.rank(); ++axis) {
    small.AddDim(random.Between(0, 2) == 0 ? 1 : shape.dim(axis));
  }
  return small;
}

Tensor BetweenKinks(CaseRandom& random, const Shape& shape) {
  std::vector<float> values(shape.num_elements());
  for (float& value : values) {
    const auto cell = static_cast<float>(random.Between(-8, 7));
    const auto place = static_cast<float>(random.Between(20, 80));
    value = 0.25f * (cell + place / 100);
  }
  return Tensor::Of<float>(shape, values);
}

std::vector<Tensor> Distinct(CaseRandom& random, const std::vector<Shape>& shapes) {
  int64_t count = 0;
  for (const Shape& shape : shapes) count += shape.num_elements();
  std::vector<float> all(count);
  for (int64_t i = 0; i < count; ++i) {
    // 0.03 apart or more, and as many below zero as above.
    const double step = std::max(0.03, 2.0 / static_cast<double>(count));
    all[i] = static_cast<float>((static_cast<double>(i - count / 2) + 0.5) * step);
  }
  for (int64_t i = count - 1; i > 0; --i) std::swap(all[i], all[random.Between(0, i)]);
  std::vector<Tensor> tensors;
  auto next = all.begin();
  for (const Shape& shape : shapes) {
    const auto end = next + shape.num_elements();
    tensors.push_back(Tensor::Of<float>(shape, std::vector<float>(next, end)));
    next = end;
  }
  return tensors;
}

Tensor Distinct(CaseRandom& random, const Shape& shape) {
  return Distinct(random, std::vector<Shape>{shape})[0];
}

Tensor Indices(CaseRandom& random, const Shape& shape, int64_t low, int64_t high) {
  std::vector<int64_t> values(shape.num_elements());
  for (int64_t& value : values) value = random.Between(low, high);
  return Tensor::Of<int64_t>(shape, values);
}

std::vector<int64_t> DifferentIndices(CaseRandom& random, int64_t count, int64_t below) {
  std::vector<int64_t> all = random.Permutation(static_cast<int>(below));
  all.resize(count);
  return all;
}

}  // namespace weft::testing
