// The part of GraphConverter that replaces calls of model-local functions by their bodies.
#include <optional>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/graph_converter.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
absl::Status GraphConverter::BindCall(const onnx::NodeProto& proto,
                                      const onnx::FunctionProto& function, ConversionScope& scope,
                                      ConversionScope& body) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> inputs, ResolveInputs(proto, scope));
  if (static_cast<int>(inputs.size()) > function.input_size() ||
      proto.output_size() > function.output_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("it calls function ", Quoted(function.name()), " with ", inputs.size(),
                     " inputs and ", proto.output_size(), " outputs, expected at most ",
                     function.input_size(), " and ", function.output_size()));
  }
  for (int i = 0; i < function.input_size(); ++i) {
    body.values[function.input(i)] = i < static_cast<int>(inputs.size()) ? inputs[i] : kNoValue;
  }
  for (int i = 0; i < proto.output_size(); ++i) {
    if (proto.output(i).empty()) continue;
    const auto outside = scope.output_names.find(proto.output(i));
    body.output_names[function.output(i)] = outside != scope.output_names.end()
                                                ? outside->second
                                                : absl::StrCat(scope.prefix, proto.output(i));
  }
  for (const onnx::AttributeProto& attribute : function.attribute_proto()) {
    body.bindings[attribute.name()] = &attribute;  // defaults
  }
  for (const onnx::AttributeProto& attribute : proto.attribute()) {
    if (attribute.ref_attr_name().empty()) {
      body.bindings[attribute.name()] = &attribute;
      continue;
    }
    const auto bound = scope.bindings.find(attribute.ref_attr_name());
    if (bound != scope.bindings.end()) body.bindings[attribute.name()] = bound->second;
  }
  return absl::OkStatus();
}

absl::Status GraphConverter::TakeOutputs(const onnx::NodeProto& proto,
                                         const onnx::FunctionProto& function, ConversionScope& body,
                                         ConversionScope& scope) {
  for (int i = 0; i < proto.output_size(); ++i) {
    if (proto.output(i).empty()) continue;
    const std::optional<ValueId> inside = Resolve(function.output(i), body);
    if (!inside || !inside->valid()) {
      return absl::InvalidArgumentError(absl::StrCat("output ", Quoted(function.output(i)),
                                                     " of function ", Quoted(function.name()),
                                                     " is defined by none of its nodes"));
    }
    ValueId value = *inside;
    const std::string& name = body.output_names[function.output(i)];
    if (graph_.value(value).name != name) {  // an input passed on, or one value as two outputs
      const NodeId first(graph_.node_capacity());
      Graph::NodeSpec identity;
      identity.name = absl::StrCat(name, "/pass");
      identity.op = "Identity";
      identity.inputs = {value};
      identity.outputs = {name};
      const Node& node = graph_.node(graph_.AddNode(std::move(identity)));
      value = node.outputs[0];
      WEFT_RETURN_IF_ERROR(Finish(first, node.name));
    }
    scope.values[proto.output(i)] = value;
  }
  return absl::OkStatus();
}

absl::Status GraphConverter::InlineCall(const onnx::NodeProto& proto, const std::string& name,
                                        const onnx::FunctionProto& function,
                                        ConversionScope& scope) {
  std::map<std::string, int64_t> opsets;
  for (const onnx::OperatorSetIdProto& opset : function.opset_import()) {
    opsets[NormalizedDomain(opset.domain())] = opset.version();
  }
  ConversionScope body;
  body.opsets = &opsets;
  body.prefix = absl::StrCat(name, "/");
  body.in_function = true;
  WEFT_RETURN_IF_ERROR(BindCall(proto, function, scope, body));
  const absl::Status status = ConvertNodes(function.node(), body);
  if (!status.ok()) {
    return Annotate(status, absl::StrCat("in function ", Quoted(function.name())));
  }
  return TakeOutputs(proto, function, body, scope);
}

}  // namespace weft
