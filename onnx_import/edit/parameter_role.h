// What a node's input is to it, and which module of the author's program a node belongs to.
#ifndef WEFT_ONNX_IMPORT_EDIT_PARAMETER_ROLE_H_
#define WEFT_ONNX_IMPORT_EDIT_PARAMETER_ROLE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "onnx_import/codec/wire.pb.h"
#include "tensor/shape.h"

namespace weft {

enum class ParameterRole : uint8_t {
  kOther,     // no learnable place that we know
  kScale,     // of a normalization, or a factor per channel
  kBias,      // of a normalization or a product, or a summand per channel
  kMean,      // the running statistics of BatchNormalization
  kVariance,  //
  kWeight,    // of a product, a convolution, a recurrent layer; a table of embeddings
};

inline bool IsStatistic(ParameterRole role) {
  return role == ParameterRole::kMean || role == ParameterRole::kVariance;
}

// What a tensor of this shape is at that input. An operand of Add or Mul counts as bias or scale
// when it is a vector: several elements along one axis.
ParameterRole RoleAt(const onnx::NodeProto& node, int input, const Shape& shape);

// What PyTorch calls a parameter of this role: "weight", "bias", "running_mean", "running_var".
std::string_view LeafName(ParameterRole role);
// What ONNX calls the input: "scale", "B"; "input3" where we do not know.
std::string PortName(const onnx::NodeProto& node, int input);

// Whether a node passes the elements of its first input on as they are: Reshape, Transpose, ...
bool OnlyMovesElements(const onnx::NodeProto& node);

// The module in which PyTorch's exporters say that a node was made: "layers.0.norm1". From the
// metadata (torch.export), else from a name such as "/layers.0/norm1/Mul" (TorchScript), where a
// later call has a number: TensorUses::ModuleAt knows of those. "" where the node says nothing, and
// for the whole model.
std::string ModuleOf(const onnx::NodeProto& node);
// Whether the metadata says it.
bool HasNameScopes(const onnx::NodeProto& node);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_PARAMETER_ROLE_H_
