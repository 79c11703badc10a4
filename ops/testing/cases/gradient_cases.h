// Random cases for checks of gradients: for every op through which gradients flow, by a rule or by
// its expansion, small shapes and values that lie away from kinks, ties and poles.
#ifndef WEFT_OPS_TESTING_CASES_GRADIENT_CASES_H_
#define WEFT_OPS_TESTING_CASES_GRADIENT_CASES_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/graph_builder.h"
#include "ops/testing/cases/random_cases.h"
#include "ops/testing/op_case.h"

namespace weft::testing {

// A small graph whose outputs are differentiated with respect to its inputs.
struct GradientCase {
  std::string name;
  // Floating ones are float32 here, and float64 in the numeric check; invalid ones are omitted.
  std::vector<Tensor> inputs;
  // Inputs that are constants of the graph, and have no gradient (shapes, axes, K).
  std::vector<int> constants = {};
  // The outputs, one for each wanted one; they may be sequences.
  std::function<std::vector<ValueId>(GraphBuilder&, const std::vector<ValueId>&)> build;
  // Inputs whose gradients are asked for; empty: all floating ones that are no constants.
  std::vector<int> checked = {};
  // The op knows no float64: the numeric gradient is one in float32, and coarse.
  bool single = false;
  // Of the five points of the numeric gradient.
  double step = 1e-3;
  // Of the largest element of the gradient: numeric against rule, float32 against float64.
  double numeric_tolerance = 1e-6;
  double production_tolerance = 1e-5;
};

// The one node of `op_case`, whose value inputs are constants.
GradientCase CaseOf(OpCase op_case);

using GradientGenerator = std::function<GradientCase(CaseRandom&)>;
// By OpSchema::FullName.
using GradientGenerators = std::map<std::string, std::vector<GradientGenerator>>;
const GradientGenerators& GradientCases();

// What an OpCase holds beside its op.
struct Operands {
  Attributes attributes = {};
  std::vector<Tensor> inputs = {};
  std::vector<bool> outputs = {true};
};
// Adds a generator of cases of one node of op `name` ("Add", "ai.weft::AddN").
void AddCase(GradientGenerators& generators, const std::string& name,
             std::function<Operands(CaseRandom&)> make);

// The families, each in a file of its own.
void AddElementwiseGradients(GradientGenerators& generators);
void AddMovementGradients(GradientGenerators& generators);
void AddIndexGradients(GradientGenerators& generators);
void AddProductGradients(GradientGenerators& generators);
void AddReductionGradients(GradientGenerators& generators);
void AddImageGradients(GradientGenerators& generators);
void AddNormalizationGradients(GradientGenerators& generators);
void AddSignalGradients(GradientGenerators& generators);
void AddSequenceGradients(GradientGenerators& generators);
void AddFeatureGradients(GradientGenerators& generators);
void AddControlFlowGradients(GradientGenerators& generators);

// ---- Values.

// Of `rank` axes of 1 to 4 elements.
Shape SmallShape(CaseRandom& random, int rank);
// A shape that broadcasts into `shape`.
Shape BroadcastableShape(CaseRandom& random, const Shape& shape);
// In [-2, 2], at least 0.05 away from all multiples of a quarter: where functions have kinks.
Tensor BetweenKinks(CaseRandom& random, const Shape& shape);
// Of all these no two elements are closer than 0.02, and none is that close to zero.
std::vector<Tensor> Distinct(CaseRandom& random, const std::vector<Shape>& shapes);
Tensor Distinct(CaseRandom& random, const Shape& shape);
// Whole numbers in [low, high].
Tensor Indices(CaseRandom& random, const Shape& shape, int64_t low, int64_t high);
// `count` different ones of 0 .. below - 1.
std::vector<int64_t> DifferentIndices(CaseRandom& random, int64_t count, int64_t below);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_CASES_GRADIENT_CASES_H_
