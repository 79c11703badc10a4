// NVRTC: on functions of the test in place of the library's, and the library itself where it is
// installed, which needs no GPU.
#include "ops/kernels/cuda/fusion/nvrtc.h"

#include <cstring>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/fusion/body_headers.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "ops/kernels/cuda/fusion/region_text.h"
#include "tensor/cuda/cuda_libraries.h"

namespace weft::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- The calls.

// What the functions below were asked, and what they say.
struct NvrtcCalls {
  std::vector<std::string> options;
  std::map<std::string, std::string> headers;
  int compile_result = 0;
  int open_programs = 0;
};
NvrtcCalls calls;
constexpr char kLogOfTest[] = "region.cu(3): error: no such thing";

absl::StatusOr<void*> FunctionOfTest(const std::string& name) {
  const auto of = [](auto* function) { return reinterpret_cast<void*>(function); };
  if (name == "nvrtcVersion") {
    return of(+[](int* major, int* minor) { return *major = 13, *minor = 1, 0; });
  }
  if (name == "nvrtcGetErrorString") return of(+[](int) { return "what it means"; });
  if (name == "nvrtcCreateProgram") {
    return of(+[](void** program, const char* text, const char*, int count,
                  const char* const* texts, const char* const* names) {
      *program = const_cast<char*>(text);
      for (int i = 0; i < count; ++i) calls.headers[names[i]] = texts[i];
      ++calls.open_programs;
      return 0;
    });
  }
  if (name == "nvrtcDestroyProgram") return of(+[](void**) { return --calls.open_programs, 0; });
  if (name == "nvrtcCompileProgram") {
    return of(+[](void*, int count, const char* const* options) {
      calls.options.assign(options, options + count);
      return calls.compile_result;
    });
  }
  if (name == "nvrtcGetProgramLogSize") {
    return of(+[](void*, size_t* bytes) { return *bytes = sizeof(kLogOfTest), 0; });
  }
  if (name == "nvrtcGetProgramLog") {
    return of(+[](void*, char* log) { return std::strcpy(log, kLogOfTest), 0; });
  }
  if (name == "nvrtcGetCUBINSize") return of(+[](void*, size_t* bytes) { return *bytes = 3, 0; });
  if (name == "nvrtcGetCUBIN") {
    return of(+[](void*, char* cubin) { return std::memcpy(cubin, "a\0b", 3), 0; });
  }
  return absl::FailedPreconditionError("no function " + name);
}

TEST(NvrtcTest, CompilesForTheCard) {
  calls = {};
  const auto nvrtc = Nvrtc::Open(FunctionOfTest);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  EXPECT_EQ((*nvrtc)->version(), "13.1");
  const auto compiled = (*nvrtc)->Compile("text", {{"a.h", "A"}, {"b", "B"}}, 9, 0);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->cubin, std::string("a\0b", 3));
  EXPECT_EQ(compiled->log, kLogOfTest);
  EXPECT_THAT(calls.options, ElementsAre("--std=c++20", "-default-device",
                                         "--gpu-architecture=sm_90", "--ptxas-options=-v"));
  EXPECT_EQ(calls.headers["a.h"], "A");
  EXPECT_EQ(calls.open_programs, 0);
  EXPECT_THAT((*nvrtc)->KeyOf(8, 0), AllOf(HasSubstr("13.1"), HasSubstr("sm_80")));
}

TEST(NvrtcTest, ARefusedTextIsAnErrorWithTheLog) {
  calls = {};
  calls.compile_result = 6;
  const auto nvrtc = Nvrtc::Open(FunctionOfTest);
  const absl::Status status = (*nvrtc)->Compile("text", {}, 8, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("13.1: nvrtcCompileProgram fails with 6 (what it means)"),
                    HasSubstr(kLogOfTest)));
  EXPECT_EQ(calls.open_programs, 0);
}

TEST(NvrtcTest, AMissingFunctionIsNamed) {
  const auto nvrtc = Nvrtc::Open([](const std::string& name) -> absl::StatusOr<void*> {
    if (name == "nvrtcGetCUBIN") return absl::FailedPreconditionError("no function " + name);
    return FunctionOfTest(name);
  });
  EXPECT_THAT(std::string(nvrtc.status().message()), HasSubstr("no function nvrtcGetCUBIN"));
}

// ---- Real texts.

ValueId RegionInput(Graph& body, const Shape& shape, DType dtype) {
  return body.AddInput("x", {ValueKind::kTensor, dtype, SymbolicShape(shape)});
}

// Activations and their slopes with a bias and a residual, by type and columns.
Graph ActivationRegion(DType dtype, int64_t rows, int64_t columns) {
  Graph body;
  GraphBuilder builder(body);
  const ValueId x = RegionInput(body, {rows, columns}, dtype);
  const ValueId sum = builder.Op("Add", {x, RegionInput(body, {columns}, dtype)});
  const ValueId gelu = builder.Op("Gelu", {sum});
  const ValueId slope =
      builder.WeftOp("TanhGeluGrad", {RegionInput(body, {rows, columns}, dtype), sum});
  const ValueId power = builder.Op("Pow", {gelu, builder.Scalar(dtype, 3)});
  body.AddOutput(builder.Op("Add", {slope, RegionInput(body, {rows, 1}, dtype)}));
  body.AddOutput(builder.Op("Mish", {power}));
  body.AddOutput(builder.Op("Less", {sum, gelu}));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return body;
}

Graph FoldingRegion(const char* op, DType dtype, int64_t rows, int64_t columns) {
  Graph body;
  GraphBuilder builder(body);
  const ValueId x = RegionInput(body, {rows, columns}, dtype);
  const ValueId scaled = builder.Op("Mul", {x, RegionInput(body, {columns}, dtype)});
  body.AddOutput(scaled);
  body.AddOutput(builder.Op(op, {scaled, builder.Ints({1})}));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return body;
}

std::vector<std::string> TextsOfRegions() {
  std::vector<Graph> bodies;
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16, DType::kFloat64}) {
    bodies.push_back(ActivationRegion(dtype, 512, 1024));
    bodies.push_back(ActivationRegion(dtype, 3, 1021));
    bodies.push_back(FoldingRegion("ReduceSum", dtype, 512, 768));
    bodies.push_back(FoldingRegion("ReduceMax", dtype, 512, 4096));
  }
  bodies.push_back(FoldingRegion("ReduceMean", DType::kBfloat16, 1 << 16, 1 << 15));
  bodies.push_back(ActivationRegion(DType::kBfloat16, 1 << 16, 1 << 15));
  std::vector<std::string> texts;
  for (const Graph& body : bodies) {
    const auto region = GenerateRegion(body);
    EXPECT_TRUE(region.ok()) << region.status();
    if (region.ok()) texts.push_back(region->text);
  }
  return texts;
}

std::vector<TextHeader> AllHeaders() {
  std::vector<TextHeader> headers = BodyHeaders();
  for (TextHeader& header : StandardHeaders()) headers.push_back(std::move(header));
  return headers;
}

TEST(BodyHeadersTest, HaveAllThatTextsInclude) {
  std::set<std::string> names;
  std::vector<std::string> texts = TextsOfRegions();
  for (const TextHeader& header : AllHeaders()) {
    EXPECT_TRUE(names.insert(header.name).second) << header.name;
    texts.push_back(header.text);
  }
  const std::regex include("#include [<\"]([^>\"]+)[>\"]");
  for (const std::string& text : texts) {
    for (auto found = std::sregex_iterator(text.begin(), text.end(), include);
         found != std::sregex_iterator(); ++found) {
      EXPECT_TRUE(names.contains((*found)[1])) << (*found)[1];
    }
  }
}

TEST(NvrtcTest, GeneratedTextsCompileWithoutSpills) {
  const auto library = FindCudaLibrary(CudaLibraryKind::kNvrtc);
  if (!library.ok()) {
    GTEST_SKIP() << "no NVRTC on this machine: generated texts are not compiled by it; "
                 << library.status().message();
  }
  const auto nvrtc = Nvrtc::Open([&](const std::string& name) { return (*library)->Symbol(name); });
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  const std::vector<TextHeader> headers = AllHeaders();
  for (const std::string& text : TextsOfRegions()) {
    for (const int major : {8, 9}) {
      const auto compiled = (*nvrtc)->Compile(text, headers, major, 0);
      ASSERT_TRUE(compiled.ok()) << compiled.status() << "\n" << text;
      EXPECT_THAT(compiled->log, AllOf(HasSubstr("0 bytes stack frame, 0 bytes spill stores"),
                                       HasSubstr(kGeneratedKernel)))
          << text;
      EXPECT_EQ(compiled->log.find("warning"), std::string::npos) << compiled->log;
      EXPECT_GT(compiled->cubin.size(), 1000u);
    }
  }
  const auto broken = (*nvrtc)->Compile("this is no text", headers, 9, 0);
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("region.cu(1)"));
}

}  // namespace
}  // namespace weft::cuda
