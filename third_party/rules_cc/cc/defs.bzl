"""The rules of rules_cc that Bazel itself loads, as the native rules they stand for in Bazel 4.

Debian's rules_cc 0.0.4 does not load in Debian's Bazel 4.2.3.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
