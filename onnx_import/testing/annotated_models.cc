#include "onnx_import/testing/annotated_models.h"

#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

constexpr char kConfiguration[] = "two by two";

onnx::ModelProto TwoLayers() {
  return ModelOf(17,
                 "agraph (float[N,4] x) => (float[N,2] y) <float[4,6] up = {1,2,3,4,5,6,7,8,9,10,"
                 "11,12,-13,-14,-15,-16,-17,-18,-19,-20,21,22,23,24}, float[6,2] down = {1,-2,3,"
                 "-4,5,-6,7,-8,9,-10,11,-12}, float[2] bias = {0.5, -0.5}> {"
                 "  h = MatMul (x, up)"
                 "  t = Tanh (h)"
                 "  z = MatMul (t, down)"
                 "  y = Add (z, bias) }");
}

}  // namespace

std::string TwoLayersBytes() { return TwoLayers().SerializeAsString(); }

std::string TwoLayersOnFourDevicesBytes(int up_axis) {
  onnx::ModelProto model = TwoLayers();
  model.set_ir_version(11);
  onnx::DeviceConfigurationProto& configuration = *model.add_configuration();
  configuration.set_name(kConfiguration);
  configuration.set_num_devices(4);
  for (int i = 0; i < model.graph().node_size(); ++i) {
    onnx::NodeDeviceConfigurationProto& annotation =
        *model.mutable_graph()->mutable_node(i)->add_device_configurations();
    annotation.set_configuration_id(kConfiguration);
    annotation.set_pipeline_stage(i < 2 ? 0 : 1);
    if (i % 2 == 1) continue;
    onnx::ShardingSpecProto& spec = *annotation.add_sharding_spec();
    spec.set_tensor_name(i == 0 ? "up" : "down");
    onnx::ShardedDimProto& dim = *spec.add_sharded_dim();
    dim.set_axis(i == 0 ? up_axis : 0);
    dim.add_simple_sharding()->set_num_shards(2);
    spec.add_device(i == 0 ? 0 : 2);
    spec.add_device(i == 0 ? 1 : 3);
  }
  return model.SerializeAsString();
}

}  // namespace weft::testing
