#include "tests/testing/model_weights.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "tests/command_run.h"

namespace weft::testing {
namespace {

::onnx::ModelProto ReadModel(const std::string& path) {
  ::onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(ReadTestFile(path))) << path;
  return model;
}

}  // namespace

Weights WeightsOf(const std::string& path) {
  Weights weights;
  const ::onnx::ModelProto model = ReadModel(path);
  for (const auto& tensor : model.graph().initializer()) {
    std::vector<float>& values = weights[tensor.name()];
    values.resize(tensor.raw_data().size() / sizeof(float));
    std::copy_n(tensor.raw_data().data(), tensor.raw_data().size(),
                reinterpret_cast<char*>(values.data()));
  }
  return weights;
}

std::set<std::string> ChangedWeights(const std::string& before, const std::string& after) {
  ::onnx::ModelProto a = ReadModel(before), b = ReadModel(after);
  std::set<std::string> names;
  EXPECT_EQ(a.graph().initializer_size(), b.graph().initializer_size());
  if (::testing::Test::HasFailure()) return names;
  for (int i = 0; i < a.graph().initializer_size(); ++i) {
    const auto& old = a.graph().initializer(i);
    auto& tensor = *b.mutable_graph()->mutable_initializer(i);
    if (tensor.SerializeAsString() == old.SerializeAsString()) continue;
    names.insert(tensor.name());
    tensor.set_raw_data(old.raw_data());
    *tensor.mutable_float_data() = old.float_data();
  }
  EXPECT_EQ(a.SerializeAsString(), b.SerializeAsString()) << "more than weights has changed";
  return names;
}

}  // namespace weft::testing
