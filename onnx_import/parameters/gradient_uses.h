// How the loss uses each variable: along inputs that gradients flow through.
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_GRADIENT_USES_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_GRADIENT_USES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_schema.h"

namespace weft {

// How a value meets a node on its way to the loss; the later, the more like a parameter.
enum class Meeting : uint8_t {
  kNone,
  kShapeValue,  // at an input whose value decides a shape
  kNever,       // at a port that is never learnable, or of a node that passes no gradient
  kOrdinary,    // as an ordinary operand
  kLearnable,   // at a learnable port
};

// The walk back from the loss. Operators without a schema are taken to let gradients through.
// Borrows the graph, which must not change while it lives.
class GradientUses {
 public:
  struct Use {
    Meeting meeting = Meeting::kNone;
    const Node* node = nullptr;
    int input = 0;
  };

  // `from`: the values that the loss is, or is made of.
  GradientUses(const Graph& graph, const std::vector<ValueId>& from);

  // All uses by nodes that the walk came to; empty where the loss does not depend on it.
  const std::vector<Use>& Of(ValueId value) const { return uses_[value.value]; }
  // The one that is most like a parameter's; kNone without any.
  Use Best(ValueId value) const;
  // Whether it is the loss, or is behind inputs that pass gradients.
  bool IsReached(ValueId value) const { return seen_[value.value]; }

 private:
  void Push(ValueId value);
  void VisitInputs(const Node& node);

  const Graph& graph_;
  std::vector<bool> seen_;
  std::vector<std::vector<Use>> uses_;  // by value
  std::vector<ValueId> stack_;
};

// The name of a port: that of the formal parameter, with a number where it is variadic ("inputs1"),
// "input2" for operators without a schema.
std::string PortName(const Node& node, int input);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_GRADIENT_USES_H_
