#include "platform/openmp_wait.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "platform/process.h"

namespace weft {
namespace {

// What a program that restarts itself sees when it is started with `settings`.
std::string SeenWith(const std::vector<std::string>& settings) {
  std::vector<std::string> arguments = {"/usr/bin/env", "-u", "OMP_WAIT_POLICY", "-u",
                                        "GOMP_SPINCOUNT"};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  for (const char* argument :
       {"platform/testing/process_test_child", "openmp-wait", "last argument"}) {
    arguments.push_back(argument);
  }
  ProcessOptions options = {.arguments = arguments,
                            .standard_output = {.kind = ProcessOutput::Kind::kPipe}};
  absl::StatusOr<std::unique_ptr<Process>> process = RealProcessLauncher().Start(options);
  if (!process.ok()) return process.status().ToString();
  return (*process)->ReadLine(absl::Now() + absl::Seconds(60)).value_or("no line");
}

TEST(OpenMpWait, ARestartedProgramHasTheVariablesAndItsArguments) {
  EXPECT_EQ(SeenWith({}), "passive 10000 last argument");
}

TEST(OpenMpWait, WhatTheUserSaysHolds) {
  EXPECT_EQ(SeenWith({"OMP_WAIT_POLICY=active"}), "active (unset) last argument");
  EXPECT_EQ(SeenWith({"GOMP_SPINCOUNT=7"}), "(unset) 7 last argument");
}

}  // namespace
}  // namespace weft
