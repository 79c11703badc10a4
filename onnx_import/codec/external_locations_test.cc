#include "onnx_import/codec/external_locations.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void PutAt(const std::string& location, onnx::TensorProto& tensor) {
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::StringStringEntryProto& offset = *tensor.add_external_data();
  offset.set_key("offset");
  offset.set_value("0");
  onnx::StringStringEntryProto& entry = *tensor.add_external_data();
  entry.set_key("location");
  entry.set_value(location);
}

TEST(ExternalLocations, AreFoundWhereverATensorIs) {
  onnx::ModelProto model;
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.add_initializer()->set_name("in the file");
  PutAt("b.bin", *graph.add_initializer());
  PutAt("b.bin", *graph.add_initializer());
  PutAt("sub/a.bin", *graph.add_sparse_initializer()->mutable_indices());
  onnx::NodeProto& node = *graph.add_node();
  PutAt("attribute", *node.add_attribute()->mutable_t());
  PutAt("list", *node.add_attribute()->add_tensors());
  PutAt("sparse", *node.add_attribute()->mutable_sparse_tensor()->mutable_values());
  PutAt("sparse list", *node.add_attribute()->add_sparse_tensors()->mutable_values());
  PutAt("body", *node.add_attribute()->mutable_g()->add_initializer());
  PutAt("bodies", *node.add_attribute()->add_graphs()->add_initializer());
  onnx::FunctionProto& function = *model.add_functions();
  PutAt("default", *function.add_attribute_proto()->mutable_t());
  PutAt("function", *function.add_node()->add_attribute()->mutable_t());
  PutAt("training", *model.add_training_info()->mutable_algorithm()->add_initializer());
  PutAt("start", *model.add_training_info()->mutable_initialization()->add_initializer());
  EXPECT_THAT(ExternalLocations(model),
              ElementsAre("attribute", "b.bin", "bodies", "body", "default", "function", "list",
                          "sparse", "sparse list", "start", "sub/a.bin", "training"));
}

TEST(ExternalLocations, OfAModelInOneFileAreNone) {
  onnx::ModelProto model;
  PutAt("not said to be external", *model.mutable_graph()->add_initializer());
  model.mutable_graph()->mutable_initializer(0)->clear_data_location();
  EXPECT_THAT(ExternalLocations(model), IsEmpty());
}

}  // namespace
}  // namespace weft
