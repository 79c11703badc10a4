#include "onnx_import/codec/module_path.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ModuleInScopes, TakesTheInnermostModule) {
  EXPECT_EQ(ModuleInScopes("['', 'encoder', 'encoder.layers.0.fc', 'linear_3']"),
            "encoder.layers.0.fc");
  EXPECT_EQ(ModuleInScopes("['', 'add']"), "");
  EXPECT_EQ(ModuleInScopes("['add']"), "");
  EXPECT_EQ(ModuleInScopes("['_empty_nn_module_stack_from_metadata_hook', 'sym_size']"), "");
  EXPECT_EQ(ModuleInScopes("['a\nb', 'add']"), "") << "no path";
  EXPECT_EQ(ModuleInScopes("['open"), "");
  EXPECT_EQ(ModuleInScopes("['" + std::string(20000, 'm') + "', 'add']"), "");
}

// Keys of a ModuleDict, the last one as PyG writes it. Such modules were none.
TEST(ModuleInScopes, KeysOfAModuleDictArePartOfThePath) {
  EXPECT_EQ(ModuleInScopes("['', 'heads.a:b', 'linear']"), "heads.a:b");
  EXPECT_EQ(ModuleInScopes("['', 'heads.two words@1', 'linear_1']"), "heads.two words");
  EXPECT_EQ(ModuleInScopes("['', 'convs.<user___to___item>.lin', 'linear']"),
            "convs.<user___to___item>.lin");
  // They mean something else in patterns and names of nodes.
  EXPECT_EQ(ModuleInScopes("['', 'heads.*', 'linear']"), "");
  EXPECT_EQ(ModuleInScopes("['', 'heads.a?', 'linear']"), "");
  EXPECT_EQ(ModuleInScopes("['', 'heads/a', 'linear']"), "");
  EXPECT_EQ(ModuleInScopes("['', 'heads.\xc3\xa9', 'linear']"), "");
}

// One of two parsers took the number for a part of the name, the other one for no name.
TEST(ModuleInScopes, ALaterCallIsTheModule) {
  EXPECT_EQ(ModuleInScopes("['', 'layers.0.norm@1', 'layer_norm_1']"), "layers.0.norm");
  EXPECT_EQ(ModuleInScopes("['', 'layers.0.norm@b', 'layer_norm_1']"), "");
  EXPECT_EQ(ModuleInScopes("['', '@1', 'layer_norm_1']"), "");
}

TEST(ModuleInNodeName, LeavesOutWhatSequentialsRepeat) {
  EXPECT_EQ(ModuleInNodeName("/bert/encoder/layer.0/query/MatMul"), "bert.encoder.layer.0.query");
  EXPECT_EQ(ModuleInNodeName("/layer1/layer1.0/conv1/Conv"), "layer1.0.conv1");
  EXPECT_EQ(ModuleInNodeName("/features/features.0/Conv"), "features.0");
  EXPECT_EQ(ModuleInNodeName("/conv/conv.0"), "conv") << "the operator is no part";
  EXPECT_EQ(ModuleInNodeName("/MatMul"), "");
  EXPECT_EQ(ModuleInNodeName("MatMul_7"), "");
}

// One of two parsers began such a path with a dot.
TEST(ModuleInNodeName, LeavesOutEmptyParts) {
  EXPECT_EQ(ModuleInNodeName("//norm/Mul"), "norm");
  EXPECT_EQ(ModuleInNodeName("/norm//Mul"), "norm");
  EXPECT_EQ(ModuleInNodeName("/"), "");
}

}  // namespace
}  // namespace weft
