"""The nonlinearities of recurrent networks."""
