#include "placement/sharding/node_localizer.h"

#include <memory>
#include <variant>

#include "graph/node_description.h"
#include "platform/status.h"

namespace weft {
namespace {

class Localizer final : public LocalizeContext {
 public:
  Localizer(const GraphNodeView& global, const NodeSharding& sharding, int shards, int index,
            LocalizedNode& result)
      : global_(global), result_(result) {
    const auto shard = [&](const Shape& shape, const AxisSharding& lies) {
      return lies.is_split() ? lies.LocalShape(shape, shards, index) : shape;
    };
    for (int i = 0; i < global.num_inputs(); ++i) {
      inputs_.push_back(shard(global.InputShape(i), sharding.inputs[i]));
    }
    for (int i = 0; i < global.num_outputs(); ++i) {
      outputs_.push_back(shard(global.OutputShape(i), sharding.outputs[i]));
    }
  }

  const Node& node() const override { return global_.node(); }
  const Shape& GlobalInputShape(int i) const override { return global_.InputShape(i); }
  const Shape& GlobalOutputShape(int i) const override { return global_.OutputShape(i); }
  const Shape& LocalInputShape(int i) const override { return At(inputs_, i); }
  const Shape& LocalOutputShape(int i) const override { return At(outputs_, i); }
  const Tensor* InputValue(int i) const override { return global_.InputValue(i); }
  void SetAttribute(const std::string& name, Attribute value) override {
    result_.attributes.Set(name, std::move(value));
  }
  void SetConstantInput(int i, Tensor value) override { result_.constants[i] = std::move(value); }

 private:
  static const Shape& At(const std::vector<Shape>& shapes, int i) {
    static const auto* const none = new Shape();
    return i >= 0 && i < static_cast<int>(shapes.size()) ? shapes[i] : *none;
  }

  const GraphNodeView& global_;
  LocalizedNode& result_;
  std::vector<Shape> inputs_;
  std::vector<Shape> outputs_;
};

}  // namespace

absl::StatusOr<LocalizedNode> LocalizeNode(const GraphNodeView& global,
                                           const NodeSharding& sharding, int shards, int index) {
  LocalizedNode result;
  result.attributes = global.attributes();
  for (const auto& [name, attribute] : global.attributes().items()) {
    const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (body != nullptr && *body != nullptr) {
      result.attributes.Set(name, std::make_shared<Graph>((*body)->Clone()));
    }
  }
  const OpSchema* schema = global.node().schema;
  if (!sharding.is_sharded() || schema == nullptr || !schema->localize()) return result;
  Localizer localizer(global, sharding, shards, index, result);
  const absl::Status status = schema->localize()(localizer);
  if (!status.ok()) return Annotate(status, DescribeNode(global.node()));
  return result;
}

}  // namespace weft
