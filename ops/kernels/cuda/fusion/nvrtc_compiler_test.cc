// Loading and launching what NVRTC made, on a CUDA runtime without a card.
#include "ops/kernels/cuda/fusion/nvrtc_compiler.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/fusion/kernel_cache.h"
#include "platform/private_folder.h"
#include "tensor/testing/fake_cuda_runtime.h"

namespace weft::cuda {
namespace {

using ::testing::HasSubstr;

// A library of the test: it "compiles" any text, and counts.
int compiled_texts = 0;

absl::StatusOr<void*> CountingFunction(const std::string& name) {
  const auto of = [](auto* function) { return reinterpret_cast<void*>(function); };
  if (name == "nvrtcVersion") {
    return of(+[](int* major, int* minor) { return *major = 13, *minor = 0, 0; });
  }
  if (name == "nvrtcGetErrorString") return of(+[](int) { return ""; });
  if (name == "nvrtcCreateProgram") {
    return of(+[](void** program, const char*, const char*, int, const char* const*,
                  const char* const*) { return *program = &compiled_texts, 0; });
  }
  if (name == "nvrtcDestroyProgram") return of(+[](void**) { return 0; });
  if (name == "nvrtcCompileProgram") {
    return of(+[](void*, int, const char* const*) { return ++compiled_texts, 0; });
  }
  if (name == "nvrtcGetProgramLogSize" || name == "nvrtcGetCUBINSize") {
    return of(+[](void*, size_t* bytes) { return *bytes = 1, 0; });
  }
  return of(+[](void*, char* text) { return *text = '\0', 0; });
}

class NvrtcCompilerTest : public ::testing::Test {
 protected:
  NvrtcCompilerTest() : nvrtc_(Nvrtc::Open(CountingFunction).value()) {
    compiled_texts = 0;
    runtime_.AddKernel(kGeneratedKernel, [this](const std::string& parameter) {
      GeneratedArguments arguments;
      ASSERT_EQ(parameter.size(), sizeof(arguments));
      std::memcpy(&arguments, parameter.data(), sizeof(arguments));
      launched_with_ = arguments.x[1];
    });
    EXPECT_EQ(runtime_.SetDevice(0), CudaCode::kSuccess);
    EXPECT_EQ(runtime_.CreateStream(0, &stream_), CudaCode::kSuccess);
    NvrtcCompilerOptions options;
    options.nvrtc = nvrtc_.get();
    options.runtime = &runtime_;
    options.major = 9;
    options.make_current = [this] { return ++made_current_, current_; };
    compiler_ = std::make_unique<NvrtcCompiler>(std::move(options));
  }
  ~NvrtcCompilerTest() override {
    EXPECT_EQ(runtime_.DestroyStream(stream_), CudaCode::kSuccess);
    EXPECT_EQ(runtime_.Leaks(), 0);
  }

  testing::FakeCudaRuntime runtime_;
  const std::unique_ptr<Nvrtc> nvrtc_;
  std::unique_ptr<NvrtcCompiler> compiler_;
  CudaStreamHandle stream_ = nullptr;
  const void* launched_with_ = nullptr;
  absl::Status current_;
  int made_current_ = 0;
};

// Whichever thread ends it.
TEST_F(NvrtcCompilerTest, CodeIsUnloadedWithItsCardCurrent) {
  auto kernel = compiler_->Compile("text").value();
  const int before = made_current_;
  kernel.reset();
  EXPECT_EQ(made_current_, before + 1);
  EXPECT_EQ(runtime_.Calls("UnloadCode"), 1);
}

TEST_F(NvrtcCompilerTest, LaunchesWithItsArgumentsInTurn) {
  const auto kernel = compiler_->Compile("text");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  int operand = 0;
  {
    GeneratedArguments arguments = {};
    arguments.x[1] = &operand;
    EXPECT_EQ((*kernel)->Launch({stream_}, {.blocks = 3, .threads = 256}, arguments), 0);
  }
  EXPECT_EQ(runtime_.SynchronizeStream(stream_), CudaCode::kSuccess);
  EXPECT_EQ(launched_with_, &operand);
  EXPECT_NE((*kernel)->Launch({stream_}, {.blocks = 3, .threads = 2048}, {}), 0);
}

TEST_F(NvrtcCompilerTest, EqualTextsAreCompiledOnceWhileTheyAreUsed) {
  auto first = compiler_->Compile("text");
  auto second = compiler_->Compile("text");
  const auto other = compiler_->Compile("other text");
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_NE(*first, *other);
  EXPECT_EQ(compiled_texts, 2);
  *first = nullptr;
  *second = nullptr;
  EXPECT_EQ(runtime_.Calls("UnloadCode"), 1);
  EXPECT_TRUE(compiler_->Compile("text").ok());
  EXPECT_EQ(compiled_texts, 3);
}

TEST_F(NvrtcCompilerTest, WhatCudaRefusesIsAnError) {
  runtime_.Fail("LoadCode", CudaCode::kNoKernelImage, 0, 1);
  const absl::Status status = compiler_->Compile("text").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("a generated kernel"));
  runtime_.Fail("FindKernel", CudaCode::kInvalidHandle, 0, 1);
  EXPECT_FALSE(compiler_->Compile("text").ok());
  current_ = absl::InternalError("no such card");
  EXPECT_THAT(std::string(compiler_->Compile("text").status().message()),
              HasSubstr("no such card"));
  current_ = absl::OkStatus();
  EXPECT_TRUE(compiler_->Compile("text").ok());
}

// What a cache on the disk saves.
class NvrtcCompilerCacheTest : public NvrtcCompilerTest {
 protected:
  NvrtcCompilerCacheTest() { std::filesystem::remove_all(path_); }
  ~NvrtcCompilerCacheTest() override { std::filesystem::remove_all(path_); }

  // A process: a compiler for a card of this architecture with a cache of its own.
  absl::Status CompileInAProcess(const std::string& text, int major = 9) {
    KernelCache cache([this] { return OpenPrivateFolder(path_); });
    NvrtcCompilerOptions options;
    options.nvrtc = nvrtc_.get();
    options.runtime = &runtime_;
    options.major = major;
    options.make_current = [] { return absl::OkStatus(); };
    options.cache = &cache;
    return NvrtcCompiler(std::move(options)).Compile(text).status();
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/nvrtc-cache-", getpid());
};

TEST_F(NvrtcCompilerCacheTest, AnotherProcessCompilesNothing) {
  EXPECT_TRUE(CompileInAProcess("text").ok());
  EXPECT_EQ(compiled_texts, 1);
  EXPECT_TRUE(CompileInAProcess("text").ok());
  EXPECT_EQ(compiled_texts, 1);
  EXPECT_EQ(runtime_.Calls("LoadCode"), 2);
  EXPECT_TRUE(CompileInAProcess("text", /*major=*/10).ok());
  EXPECT_EQ(compiled_texts, 2);
  EXPECT_TRUE(CompileInAProcess("other text").ok());
  EXPECT_EQ(compiled_texts, 3);
}

TEST_F(NvrtcCompilerCacheTest, WhatTheCardRefusesIsCompiledAnew) {
  EXPECT_TRUE(CompileInAProcess("text").ok());
  runtime_.Fail("LoadCode", CudaCode::kNoKernelImage, 0, 1);
  EXPECT_TRUE(CompileInAProcess("text").ok());
  EXPECT_EQ(compiled_texts, 2);
}

TEST_F(NvrtcCompilerCacheTest, DamagedFilesAreCompiledAnewAndReplaced) {
  EXPECT_TRUE(CompileInAProcess("text").ok());
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    std::filesystem::resize_file(entry.path(), 40);
  }
  EXPECT_TRUE(CompileInAProcess("text").ok());
  EXPECT_EQ(compiled_texts, 2);
  EXPECT_TRUE(CompileInAProcess("text").ok());
  EXPECT_EQ(compiled_texts, 2);
}

}  // namespace
}  // namespace weft::cuda
