#include "tools/flags/job_file.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A command with an option of each kind.
class JobFileTest : public ::testing::Test {
 protected:
  JobFileTest() {
    app_.add_option("MODEL", model_, "the model")->required();
    app_.add_option("--steps", steps_, "steps");
    app_.add_option("--lr", rates_, "rates")->allow_extra_args(false);
    app_.add_option("--data", data_, "data")->delimiter(',');
    app_.add_option("-o,--out", out_, "result");
    app_.add_flag("--no-shuffle", no_shuffle_, "order");
    AddJobFile(app_, print_);
  }

  // What is wrong, or "".
  std::string Parse(std::vector<std::string> arguments) {
    try {
      app_.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  static std::string File(const std::string& text) {
    const std::string path = ::testing::TempDir() + "/job.yaml";
    std::ofstream(path) << text;
    return path;
  }

  CLI::App app_;
  std::string model_;
  int64_t steps_ = 0;
  std::vector<std::string> rates_;
  std::vector<std::string> data_;
  std::string out_;
  bool no_shuffle_ = false;
  bool print_ = false;
};

TEST_F(JobFileTest, SaysWhatFlagsSay) {
  ASSERT_EQ(Parse({"--config", File("model: m.onnx\n"
                                    "steps: 12\n"
                                    "lr: [1e-3, 'head/*=1e-2']\n"
                                    "data: {x: a.npy, y: b.npy}\n"
                                    "no_shuffle: true\n")}),
            "");
  EXPECT_EQ(model_, "m.onnx");
  EXPECT_EQ(steps_, 12);
  EXPECT_THAT(rates_, ElementsAre("1e-3", "head/*=1e-2"));
  EXPECT_THAT(data_, ElementsAre("x=a.npy", "y=b.npy"));
  EXPECT_TRUE(no_shuffle_);
}

TEST_F(JobFileTest, FlagsWin) {
  const std::string file = File("model: m.onnx\nsteps: 12\nlr: 0.5\n");
  ASSERT_EQ(Parse({"other.onnx", "--config", file, "--steps", "7", "--lr", "0.25"}), "");
  EXPECT_EQ(model_, "other.onnx");
  EXPECT_EQ(steps_, 7);
  EXPECT_THAT(rates_, ElementsAre("0.25"));
}

TEST_F(JobFileTest, WhatIsPrintedSaysTheSame) {
  ASSERT_EQ(Parse({"m.onnx", "--lr", "1e-3", "--lr", "head/*=1e-2", "--data", "x=a.npy", "-o",
                   "out.onnx", "--no-shuffle", "--print-config"}),
            "");
  EXPECT_TRUE(print_);
  const std::string text = JobFileText(app_);
  EXPECT_EQ(text,
            "model: m.onnx\n"
            "lr: [1e-3, head/*=1e-2]\n"
            "data: x=a.npy\n"
            "out: out.onnx\n"
            "no-shuffle: true\n");
  app_.clear();
  ASSERT_EQ(Parse({"--config", File(text)}), "");
  EXPECT_EQ(JobFileText(app_), text);
}

TEST_F(JobFileTest, AnUnknownKeyNamesLineAndNearest) {
  const std::string file = File("model: m.onnx\nstep: 12\n");
  EXPECT_EQ(Parse({"--config", file}), file + " line 2: unknown key 'step', did you mean 'steps'?");
}

// The flag was refused with its new name, the key only as unknown.
TEST_F(JobFileTest, AKeysFormerNameIsRefusedWithTheNewOne) {
  const std::string file = File("model: m.onnx\nledger: runs.jsonl\n");
  EXPECT_EQ(Parse({"--config", file}), file + " line 2: key 'ledger' is now called run-history");
}

TEST_F(JobFileTest, AFileNamesNoOtherFile) {
  EXPECT_THAT(Parse({"--config", File("config: other.yaml\n")}),
              HasSubstr("line 1: unknown key 'config'"));
}

TEST_F(JobFileTest, BrokenYamlNamesTheLine) {
  EXPECT_THAT(Parse({"--config", File("model: m.onnx\nsteps: [1, 2\n")}),
              HasSubstr("job.yaml line 3: "));
  EXPECT_THAT(Parse({"--config", File("- steps\n")}), HasSubstr("expected options"));
  EXPECT_THAT(Parse({"--config", File("steps: [[1]]\n")}), HasSubstr("line 1: expected a text"));
}

TEST_F(JobFileTest, AValueIsCheckedLikeThatOfAFlag) {
  EXPECT_THAT(Parse({"--config", File("model: m.onnx\nsteps: many\n")}), HasSubstr("--steps"));
}

TEST_F(JobFileTest, AMissingFileIsNamed) {
  EXPECT_THAT(Parse({"m.onnx", "--config", "nowhere.yaml"}), HasSubstr("nowhere.yaml"));
}

}  // namespace
}  // namespace weft
